"""`osrdyne pipeline recommend`: which delays would be better, with evidence, as a change that a person reviews; and
whether the last change brought what it promised.
"""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.starting import AUTO, started
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.promises import changes as changes_made
from osrdyne_pipeline.promises import loop
from osrdyne_pipeline.promises import text as promises_text
from osrdyne_pipeline.promises.changes import AppliedChange, own
from osrdyne_pipeline.promises.going_back import going_back
from osrdyne_pipeline.promises.verdict import Review
from osrdyne_pipeline.promises.waiting import waits
from osrdyne_pipeline.recommendation import advice, text
from osrdyne_pipeline.recommendation.edit import change, settings_file
from osrdyne_pipeline.recommendation.edit.change import FileChange
from osrdyne_pipeline.recommendation.edit.wanted import WantedSettings, recommended
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_pipeline.tables import shown
from osrdyne_pool.settings import PoolSettings
from osrdyne_runtime.console.output import CannotAsk, print_json

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

#: In the folder of the pool: what was recommended last, for the report.
FILE = "recommendation.json"
#: The tables that are read.
TABLES = ("silver/requests", "gold/starts", "gold/key_classes", "gold/cold_starts", "gold/worker_hours")


@dataclass(frozen=True)
class _Kind:
    """A kind of file that has a pool's settings: how they are changed, and how they are read."""

    option: str
    change: Callable[[WantedSettings, Path], FileChange]
    read: Callable[[str, Path], PoolSettings]


_STACK = _Kind("--stack", change.pulumi, change.pulumi_pool)
_ANSIBLE = _Kind("--ansible", change.ansible, change.ansible_pool)
_SETTINGS = _Kind("--settings", settings_file.settings, settings_file.settings_pool)


def _goal(word: str) -> str:
    if word not in advice.GOALS:
        raise typer.BadParameter(f"{word!r} is neither {' nor '.join(advice.GOALS)}")
    return word


def _file(help_text: str) -> Any:
    return typer.Option(exists=True, dir_okay=False, metavar="FILE", help=help_text)


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    stack: Annotated[Path | None, _file("Pulumi.STACK.yaml to change; shown as a diff.")] = None,
    ansible: Annotated[Path | None, _file("Ansible variables to change; shown as a diff.")] = None,
    settings: Annotated[
        Path | None, _file("Settings of the daemon to change, which it takes at once; shown as a diff.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", "--write", help="Write the changes into those files, too.")] = False,
    in_force: Annotated[
        datetime | None,
        typer.Option(
            "--from", parser=options.moment, metavar="TIME", help="With --apply: when it takes effect, if not now."
        ),
    ] = None,
    unbind_delay: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Today's delay until unbound, if not that of the file, or 600."),
    ] = None,
    stop_delay: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Today's delay until stopped, if not that of the file, or 600."),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            callback=_goal,
            metavar="cold|hours",
            help="cold: fewest cold starts at today's worker-hours; hours: the other way round.",
        ),
    ] = "cold",
    engine: options.Engine = AUTO,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Find better delays, and say how they do on days that they were not made from.

    Says of the last change whether it kept its promise, and proposes to go back where it did not. Nothing is
    recommended where the history does not support it. Files are changed with --apply only.
    """
    files = [(kind, file) for kind, file in ((_STACK, stack), (_ANSIBLE, ansible), (_SETTINGS, settings)) if file]
    asked = _Options(files, apply, in_force, unbind_delay, stop_delay, goal)
    found = _find(lake_at(lake, pool), asked, engine=engine, master=master, memory=memory)
    if json:
        print_json(found.to_json())
    else:
        found.print_text()


def for_settings(
    place: AnyLake, settings: Path | None, *, apply: bool, engine: str, master: str | None, memory: str
) -> dict[str, Any]:
    """Do what `recommend` does with a settings file, and return its JSON document. Raises `PipelineError`."""
    asked = _Options([(_SETTINGS, settings)] if settings else [], apply)
    return _find(place, asked, engine=engine, master=master, memory=memory).to_json()


@dataclass(frozen=True)
class _Options:
    """What is asked for beside the pool."""

    #: Files to change, with their kinds.
    files: Sequence[tuple[_Kind, Path]]
    apply: bool = False
    in_force: datetime | None = None
    unbind_delay: float | None = None
    stop_delay: float | None = None
    goal: str = "cold"


@dataclass(frozen=True)
class _Outcome:
    """What was found, and what was written of it."""

    document: dict[str, Any]
    #: In words.
    lines: Sequence[str]
    edits: Sequence[FileChange]
    written: Sequence[FileChange]

    def to_json(self) -> dict[str, Any]:
        diffs = [{"file": str(edit.path), "diff": edit.diff(), "written": edit in self.written} for edit in self.edits]
        return {**self.document, "changes": diffs}

    def print_text(self) -> None:
        for words in self.lines:
            typer.echo(words)
        for edit in self.edits:
            as_it_is = edit.diff() or f"{edit.path} has these settings already"
            typer.echo(f"written: {edit.path}" if edit in self.written else as_it_is)


def _find(place: AnyLake, asked: _Options, *, engine: str, master: str | None, memory: str) -> _Outcome:
    """Find better delays, note them in the lake for the report, and write the files where that is asked for."""
    pool, files = place.pool, asked.files
    if not place.exists("silver/requests"):
        raise LakeError(f"there are no tables of {pool} in {place.where}: osrdyne pipeline tables makes them")
    if asked.apply and not files:
        raise CannotAsk("--apply needs a file to write: give --stack, --ansible or --settings")
    place.check_writable()
    before = changes_made.read(place)
    there = files[0][0].read(pool, files[0][1]) if files else before[-1].after if before else PoolSettings(pool)
    ask = _asked(there, asked.unbind_delay, asked.stop_delay, asked.goal)
    with started("recommend", place, engine=engine, master=master, memory=memory) as session, Steps() as steps:
        steps("replaying the calls")
        tables = shown(session, place, *TABLES)
        known = advice.KnownCalls.of(tables)
        review = loop.look(tables, known.calls, before)
        found_waits = waits(before, known.calls.until)
        ask = replace(
            ask,
            left=frozenset(key for each in found_waits for key in each.keys),
            not_yet=tuple(str(each) for each in found_waits if not each.keys),
        )
        found = advice.recommend(known, ask, pool)
        by_hand = bool(before) and not changes_made.same(there, before[-1].after)
        # What a person wrote since is not taken back.
        back = going_back(before[-1], review) if review is not None and not by_hand else None
        wanted = back or (recommended(found, own(there, sorted(ask.left))) if found.recommended else None)
        edits = [replace(kind.change(wanted, file), option=kind.option) for kind, file in files] if wanted else []
        written = [edit for edit in edits if asked.apply and edit.before != edit.after]
        if wanted and written:
            at = time.time() if asked.in_force is None else asked.in_force.timestamp()
            promise = None if back else found.promise
            one = loop.noted(tables, known.calls, before, review, written, wanted, promise, at)
            loop.apply(place, before, one, written)
    document = {
        **found.to_json(),
        "review": _reviewed(before, review, by_hand=by_hand),
        "goes_back": back is not None,
        "waits": [asdict(each) for each in found_waits],
        "files": [(kind.option, str(file.absolute())) for kind, file in files]
        or list(before[-1].files if before else ()),
    }
    place.write_file(FILE, json_text.dumps(document))
    lines = [text.render(found)]
    if review is not None:
        lines.append("\n" + promises_text.render(before[-1], review, by_hand=by_hand))
    lines += [f"not yet: {each}" for each in found_waits]
    if back:
        lines.append("what is recommended above waits for that: go back first, and run this again")
    return _Outcome(document, lines, edits, written)


def _asked(there: PoolSettings, unbind: float | None, stop: float | None, goal: str) -> advice.AdviceRequest:
    """What is asked beside the settings of today. Who gives delays means these, for all keys."""
    return advice.AdviceRequest(
        unbind=there.unbind_delay if unbind is None else unbind,
        stop=there.stop_delay if stop is None else stop,
        overrides=there.overrides if unbind is None and stop is None else {},
        goal=goal,
    )


def _reviewed(before: tuple[AppliedChange, ...], review: Review | None, *, by_hand: bool) -> dict[str, Any] | None:
    if review is None:
        return None
    last = before[-1]
    return {
        "at": promises_text.moment(last.at),
        "promised": last.promise is not None,
        **asdict(review),
        "notes": promises_text.notes(last, review, by_hand=by_hand),
    }
