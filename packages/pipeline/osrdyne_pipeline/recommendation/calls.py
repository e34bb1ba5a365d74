"""What policies are judged on: each key's stretches of activity, out of silver requests, as arrays.

The engine orders the requests of each key and merges those less than MERGE_SECONDS apart into one stretch; so a key has
at most one stretch a minute of history, and what comes to this process is bounded: of a longer history than `most`
stretches only the newest weeks are taken.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Requests this much apart are one stretch: no policy compared here lets a group go sooner.
MERGE_SECONDS = 60
#: Stretches that are brought to this process: about 200 MB.
MOST_STRETCHES = 4_000_000
DAY = 86_400
WEEK = 7 * DAY
#: The order of a key's requests.
ORDER = ("seen_ms", "request_id", "number")
#: The stretches of the table `requests`. A request whose end is not known ended when it was last seen.
STRETCHES = f"""
    with ended as (
        select *, greatest(seen_ms, coalesce(done_ms, received_ms, seen_ms)) as end_ms from requests
    ), apart as (
        select key, seen_ms, end_ms, request_id, number, case when seen_ms - max(end_ms) over (
                partition by key order by {", ".join(ORDER)} rows between unbounded preceding and 1 preceding
            ) < {MERGE_SECONDS * 1000} then 0 else 1 end as begins
        from ended
    ), numbered as (
        select key, seen_ms, end_ms, sum(begins) over (
                partition by key order by {", ".join(ORDER)} rows between unbounded preceding and current row
            ) as stretch
        from apart
    )
    select key, min(seen_ms) as begin_ms, max(end_ms) as end_ms, count(*) as requests
    from numbered group by key, stretch
"""


@dataclass(frozen=True)
class Calls:
    """Stretches of activity, ordered by key and time. Times are seconds since the Unix epoch."""

    keys: tuple[str, ...]
    #: Of each stretch: number of its key in `keys`, first request, end of the last, number of requests.
    key: Integers
    begin: Floats
    end: Floats
    requests: Integers
    #: End of the stretch before, of the same key; -inf for a key's first.
    before: Floats
    #: Begin of the next, of the same key; inf for a key's last.
    after: Floats
    #: What is covered: the first day's begin, and the end of the last whole day.
    since: float
    until: float
    #: Whether older weeks were left out.
    shortened: bool = False

    @classmethod
    def of(
        cls,
        keys: tuple[str, ...],
        key: Integers,
        begin: Floats,
        end: Floats,
        requests: Integers,
        shortened: bool = False,
    ) -> Calls:
        """Return the calls, from columns ordered by key and begin."""
        first = np.ones(len(key), bool)
        first[1:] = key[1:] != key[:-1]
        before = np.where(first, -np.inf, np.roll(end, 1))
        after = np.where(np.roll(first, -1), np.inf, np.roll(begin, -1))
        since = float(begin.min() // DAY * DAY) if len(begin) else 0.0
        until = float(end.max() // DAY * DAY) if len(end) else 0.0
        return cls(keys, key, begin, end, requests, before, after, since, until, shortened)

    def part(self, since: float, until: float) -> Calls:
        """Return the calls that a replay of [since, until) looks at: those within, and each key's last before."""
        seen = (self.begin < until) & (self.after > since)
        return replace(
            self,
            key=self.key[seen],
            begin=self.begin[seen],
            end=self.end[seen],
            requests=self.requests[seen],
            before=self.before[seen],
            after=self.after[seen],
            since=since,
            until=until,
        )

    def without(self, keys: Collection[str]) -> Calls:
        """Return the calls of other keys. All keys keep their numbers."""
        numbers = [number for number, key in enumerate(self.keys) if key in keys]
        if not numbers:
            return self
        kept = ~np.isin(self.key, numbers)
        names = ("key", "begin", "end", "requests", "before", "after")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})


class Tables(Protocol):
    """What answers queries, in SQL that Spark and DuckDB both understand."""

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query."""

    def kept(self, name: str, query: str) -> AbstractContextManager[None]:
        """Let queries know the rows of a query by a name meanwhile, so that they are computed once."""


def collect(tables: Tables, without: Collection[str] = (), most: int = MOST_STRETCHES) -> Calls:
    """Return the calls of the table `requests`: all of them, or the newest whole weeks of at most `most` stretches.

    Calls of the keys `without` are left out.
    """
    with tables.kept("stretches", STRETCHES):
        since = _newest(tables, most)
        kept = "" if since is None else f"where begin_ms >= {since}"
        table = tables.table(f"select key, begin_ms, end_ms, requests from stretches {kept} order by key, begin_ms")
    if without:
        table = table.filter(pc.invert(pc.is_in(table.column("key"), pa.array(sorted(without), table["key"].type))))
    encoded = table.column("key").combine_chunks().dictionary_encode()
    return Calls.of(
        tuple(encoded.dictionary.to_pylist()),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        table.column("begin_ms").to_numpy() / 1000.0,
        table.column("end_ms").to_numpy() / 1000.0,
        table.column("requests").to_numpy().astype(np.int64),
        since is not None,
    )


def _newest(tables: Tables, most: int) -> int | None:
    """Return the begin (milliseconds) of the newest weeks that together have at most `most` stretches; None: all."""
    week_ms = WEEK * 1000
    begin = f"begin_ms - begin_ms % {week_ms}"
    weeks = tables.table(f"select {begin} as week, count(*) as n from stretches group by week order by week desc")
    total, oldest = 0, None
    for row in weeks.to_pylist():
        total += row["n"]
        if total > most and oldest is not None:
            return int(oldest)
        oldest = row["week"]
    return None
