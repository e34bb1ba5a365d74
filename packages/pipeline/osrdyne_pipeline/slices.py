"""Which days of bronze changed since the tables were made, and the rows of silver that must be made again.

A table of silver is made again from a slice: all that the changed days touch, whole, also what of it is on other days.
The same queries make the new rows of a slice; beside the old ones they show on which days something differs. Those
days alone are written. `SLICES` has the slices in SQL that Spark and DuckDB both understand, so the engines agree.

Of a changed day, all from its beginning on is taken to have changed: a late start of a group moves what follows it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osrdyne_pipeline.lake import IN_BATCHES
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.small.parts import DAY_MS
from osrdyne_protocol import events as names

if TYPE_CHECKING:
    from osrdyne_pipeline.small.engine import SmallEngine
    from osrdyne_pipeline.spark.tables import SparkMaker
    from osrdyne_pipeline.store.opening import AnyLake

#: Beside the tables: what they were made of, and by which code.
NOTE = "tables.json"
#: Tables that are made of bronze, each of those before it.
MADE = [name for name in TABLES if name not in IN_BATCHES]
#: Where more than this share of all days is not earlier than a changed one, all tables are made from nothing.
MOST = 0.5

_OF_A_REQUEST = (names.ORPHAN_SEEN, names.FORWARDED, names.REQUEST_RECEIVED, names.FINISHED, names.DEAD_LETTERED)
_OF_A_GROUP = (names.STARTED, names.GROUP_STARTED, names.GROUP_STOPPED, names.QUEUE_DELETED)
#: A request without an id is one of its own, as in silver.requests.
_ID = "coalesce(nullif({0}request_id, ''), concat('~', {0}event_id))"
#: What requests and lives are made of.
_SAID = "given.key, event, event_id, time_ms, worker_id, given.request_id, outcome, caller"
#: When a request was handed out, as silver.lives has it.
_RUN_AT = "coalesce(done_ms - run_ms, received_ms)"
_DIFFERENCE = "select * from come union all select * from gone"

#: Table -> queries of the parts of its slice, in order. `was_TABLE` is a table as it was, and `all_TABLE` as it is now.
#: `chosen` is what is made again, `was` its old rows, and the others are what the new ones are made of. `{days}` are
#: the days of bronze that changed. `{since}` is when the first of them begins, later when the first event differs.
SLICES: dict[str, dict[str, str]] = {
    # An event is touched where a copy of it was, or is, on a changed day: another copy may now be the first. Few have
    # a copy that is `older`; to look for them reads nothing but ids.
    "silver/events": {
        "chosen": """
            select event_id from all_bronze where time_ms >= {since} and day in ({days})
            union select event_id from was_events where time_ms >= {since} and day in ({days})
        """,
        "older": """
            select distinct event_id from all_bronze semi join chosen using (event_id) where time_ms < {since}
        """,
        "bronze": """
            select given.* from all_bronze as given
                semi join chosen on given.event_id = chosen.event_id where time_ms >= {since}
            union all select given.* from all_bronze as given
                semi join older on given.event_id = older.event_id where time_ms < {since}
        """,
        "was": """
            select given.* from was_events as given
                semi join chosen on given.event_id = chosen.event_id where time_ms >= {since}
            union all select given.* from was_events as given
                semi join older on given.event_id = older.event_id where time_ms < {since}
        """,
    },
    # What happened later than all events of a request does not change it: it counts the group's starts before its
    # last hand-out. So requests without a later event stay, and of the others all events count, whenever they were.
    "silver/requests": {
        "chosen": f"""
            select key, {_ID.format("")} as request_id from all_events where time_ms >= {{since}}
            union select key, {_ID.format("")} as request_id from was_events where time_ms >= {{since}}
        """,
        "events": f"""
            select {_SAID} from all_events as given
                semi join chosen on given.key = chosen.key and {_ID.format("given.")} = chosen.request_id
                where event in ({", ".join(f"'{event}'" for event in _OF_A_REQUEST)})
            union all
            select {_SAID} from all_events as given where event in ({", ".join(f"'{event}'" for event in _OF_A_GROUP)})
        """,
        "was": """
            select given.* from was_requests as given
                semi join chosen on given.key = chosen.key and given.request_id = chosen.request_id
        """,
    },
    # Of each key, the life in which the first change lies, and all after it. A run may lie before `{since}`: its end
    # is what came later. A key without a life before the change is made again from its first event.
    "silver/lives": {
        "chosen": f"""
            with moved as (
                select key, min({_RUN_AT}) as at_ms from ({_DIFFERENCE}) group by key
            )
            select lives.key, max(started_ms) as from_ms
            from was_lives as lives left join moved on lives.key = moved.key
            where started_ms < least({{since}}, coalesce(at_ms, {{since}})) group by lives.key
        """,
        "events": f"""
            select {_SAID} from all_events as given left join chosen on given.key = chosen.key
            where time_ms >= coalesce(from_ms, 0)
        """,
        "requests": f"""
            select given.* from all_requests as given left join chosen on given.key = chosen.key
            where {_RUN_AT} >= coalesce(from_ms, 0)
        """,
        "was": """
            select given.* from was_lives as given left join chosen on given.key = chosen.key
            where started_ms >= coalesce(from_ms, 0)
        """,
    },
}


def build(engine: SmallEngine | SparkMaker, lake: AnyLake, progress: Callable[[str, int, int], None]) -> None:
    """Make every table after bronze again: of silver the days that changed, where they are known.

    What the tables are made of is noted when they are: after a run that was cut short, by other code, or where
    something else has changed a table, they are made from nothing. Raises LakeError where the lake cannot be used.
    """
    # First: what an ingest adds meanwhile is a change for the next run, whether this one sees it or not.
    now = lake.files("bronze")
    code = hashlib.sha256(
        b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.rglob("*.py")))
    ).hexdigest()
    before = _made_of(lake, code)
    days, every = _days(dict(before.items() ^ now.items())), _days(now)
    if not before or (days and sum(day >= days[0] for day in every) > MOST * len(every)):
        _make(engine, lake, progress, [])
    elif days:
        _make(engine, lake, progress, days)
    lake.write_file(NOTE, json.dumps({"code": code, "bronze": now, "tables": _files(lake)}))


def _made_of(lake: AnyLake, code: str) -> dict[str, str]:
    """Return the files of bronze that the tables are made of; none where the note does not fit or cannot be read."""
    try:
        note = json.loads(lake.read_file(NOTE) or "{}")
        return dict(note["bronze"]) if (note["code"], note["tables"]) == (code, _files(lake)) else {}
    except (ValueError, LookupError, TypeError):
        return {}


def _make(
    engine: SmallEngine | SparkMaker, lake: Any, progress: Callable[[str, int, int], None], days: list[str]
) -> None:
    """Make all tables again: of silver these days, of which none is earlier than the first; without days, all."""
    engine.show(lake, "bronze", prefix="all_" if days else "")
    if days:
        engine.show(lake, *SLICES, prefix="was_")
    # Of bronze, when the first changed day begins; then, when the first event differs.
    since = (date.fromisoformat(days[0]) - date(1970, 1, 1)).days * DAY_MS if days else 0
    for number, name in enumerate(MADE, start=1):
        progress(name, number, len(MADE))
        if days and name in SLICES:
            _remake(engine, lake, name, days, since)
        else:
            engine.make(name)
            engine.write(lake, name, "select * from making")
            engine.show(lake, name)
        if days and name == "silver/events":
            since = engine.table(f"select min(time_ms) as ms from ({_DIFFERENCE})")["ms"][0].as_py()
            if since is None:
                return
        if name == "silver/lives":
            engine.show(lake, *SLICES)


def _remake(engine: SmallEngine | SparkMaker, lake: Any, name: str, days: list[str], since: int) -> None:
    """Make a table of silver again where it differs. After it, queries know rows that `come` and rows that are `gone`.

    They also know the table as it is now.
    """
    for part, query in SLICES[name].items():
        engine.keep(part, query.format(days=_listed(days), since=since))
    engine.make(name)
    engine.keep("made", "select * from making")
    engine.keep("come", "select * from made except all select * from was")
    engine.keep("gone", "select * from was except all select * from made")
    if different := list(map(str, engine.table(f"select distinct day from ({_DIFFERENCE})")["day"].to_pylist())):
        was = f"select * from was_{name.rpartition('/')[2]} where day in ({_listed(different)})"
        engine.write(lake, name, f"({was} except all select * from gone) union all select * from come", different)
    engine.show(lake, name, prefix="all_")


def _listed(days: Iterable[str]) -> str:
    return ", ".join(f"date '{day}'" for day in days)


def _files(lake: AnyLake) -> dict[str, dict[str, str]]:
    return {name: lake.files(name) for name in MADE}


def _days(files: Iterable[str]) -> list[str]:
    return sorted({file.split("/")[-2].removeprefix("day=") for file in files})
