"""The changes that were made, as the lake keeps them: settings before and after, and what was promised.

A file beside the tables, `changes.json`: a list, the last change last. The text of settings files is not in it, for
these may have secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.recommendation.outcome import Promise, PromisedEffect, Ratio
from osrdyne_pool.settings import Delays, PoolSettings
from osrdyne_protocol import foreign_json
from osrdyne_protocol.errors import SettingsError

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

#: In the folder of the pool.
FILE = "changes.json"
#: Changes that are kept; older ones are dropped.
MOST_CHANGES = 50


@dataclass(frozen=True)
class ReplayCorrection:
    """What a replay does not count, as it was before the change: it is expected after it, too."""

    #: Cold requests for one of the replay: of calls that come at once, each finds no queue.
    cold: float = 1.0
    #: Seconds for which a start of a group makes it live longer: until its worker runs, and until it is gone.
    start_seconds: float = 0.0


@dataclass(frozen=True)
class AppliedChange:
    """One change of a pool's settings. Of the settings, only delays and overrides count."""

    #: Since when it is in force, in seconds since the Unix epoch.
    at: float
    before: PoolSettings
    after: PoolSettings
    #: None where a change was taken back.
    promise: Promise | None
    usual: ReplayCorrection
    #: The files that were written, each with the option of `recommend` that names it.
    files: tuple[tuple[str, str], ...]
    #: Keys whose settings were recommended; what a person wrote for others is in `after`, too.
    keys: tuple[str, ...] = ()
    #: Of these, those for which `before` has what a person wrote.
    theirs: tuple[str, ...] = ()


def read(lake: AnyLake) -> tuple[AppliedChange, ...]:
    """Return the changes of a pool, the last one last. Raises `LakeError`."""
    return _changes(lake, lake.read_file(FILE))


def _changes(lake: AnyLake, content: bytes | None) -> tuple[AppliedChange, ...]:
    if content is None:
        return ()
    try:
        document = foreign_json.read(content, most=foreign_json.MOST_BYTES_OF_ENGINES)
        return tuple(_change(each, lake.pool) for each in document["changes"])
    except (ValueError, KeyError, TypeError, AttributeError, SettingsError) as error:
        raise LakeError(
            f"{lake.where}/{FILE} does not hold changes ({error!r}): put back a copy of it, or remove it, and what was "
            "promised is no longer compared"
        ) from None


def write(lake: AnyLake, changes: Sequence[AppliedChange], before: Sequence[AppliedChange]) -> None:
    """Replace the changes of a pool, which are `before`. Only the last ones are kept.

    Raises `LakeBusy` where they are others by now: another process has written them.
    """
    kept = [_document(each) for each in changes[-MOST_CHANGES:]]

    def replaced(content: bytes | None) -> str:
        if _changes(lake, content) != tuple(before):
            raise LakeBusy(f"another recommend has written a change of {lake.where} meanwhile; run again")
        return json.dumps({"changes": kept})

    lake.update_file(FILE, replaced)


def _document(change: AppliedChange) -> dict[str, Any]:
    return {
        "at": change.at,
        "before": _delays(change.before),
        "after": _delays(change.after),
        "promise": None if change.promise is None else asdict(change.promise),
        "usual": asdict(change.usual),
        "files": list(change.files),
        "keys": list(change.keys),
        "theirs": list(change.theirs),
    }


def _delays(pool: PoolSettings) -> dict[str, Any]:
    overrides = {key: asdict(delays) for key, delays in pool.overrides.items()}
    return {"unbind_delay": pool.unbind_delay, "stop_delay": pool.stop_delay, "overrides": overrides}


def _change(document: Mapping[str, Any], pool: str) -> AppliedChange:
    promise = document["promise"]
    return AppliedChange(
        float(document["at"]),
        PoolSettings.from_mapping({"name": pool, **document["before"]}),
        PoolSettings.from_mapping({"name": pool, **document["after"]}),
        None if promise is None else _promise(promise),
        ReplayCorrection(float(document["usual"]["cold"]), float(document["usual"]["start_seconds"])),
        tuple((str(option), str(file)) for option, file in document["files"]),
        tuple(map(str, document["keys"])),
        tuple(map(str, document["theirs"])),
    )


def _promise(document: Mapping[str, Any]) -> Promise:
    keys = {str(key): _promised(each) for key, each in document["keys"].items()}
    return Promise(_promised(document["total"]), keys)


def _promised(document: Mapping[str, Any]) -> PromisedEffect:
    ratios = {name: Ratio(**document[name]) for name in ("cold", "hours")}
    return PromisedEffect(**{**document, **ratios})


def own(pool: PoolSettings, keys: Sequence[str]) -> dict[str, Delays]:
    """Return the settings of some keys, of those that have any."""
    return {key: pool.overrides[key] for key in keys if key in pool.overrides}


def same(one: PoolSettings, other: PoolSettings) -> bool:
    """Whether two pools have the same delays and overrides."""
    return _delays(one) == _delays(other)
