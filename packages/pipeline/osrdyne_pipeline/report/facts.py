"""Ask the tables what the report says: small aggregates only, so that the page does not grow with the pool.

Reads gold tables, and of silver the number of events and of outcomes; writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from osrdyne_pipeline.recommendation.choices import failing
from osrdyne_pipeline.report import content, numbers
from osrdyne_pipeline.report.element import shown
from osrdyne_protocol.statuses import OK

#: Keys that have a row of their own in the heat map, and in the latency split.
HEAT_KEYS = 20
LATENCY_KEYS = 7
#: Causes of failures that are listed.
CAUSES = 10
#: Keys whose causes are listed, and causes of each.
CAUSE_KEYS, KEY_CAUSES = 15, 5
#: Columns that a chart over time has at most.
COLUMNS = 120

#: What is asked, one after the other.
PARTS = ("totals", "demand", "latency", "workers", "failures")

#: Called before each part: with its name, its number from 1, and how many there are.
Progress = Callable[[str, int, int], None]
#: Gives the rows of a query, which knows `TABLES` by the last part of their names.
Ask = Callable[[str], list[dict[str, Any]]]
#: The tables that are asked; see schemas.TABLES.
TABLES = (
    *("rejects", "silver/events", "silver/requests", "gold/demand", "gold/cold_starts", "gold/latency"),
    *(
        "gold/worker_hours",
        "gold/failures",
        "gold/causes",
        "gold/starts",
        "gold/key_classes",
        "gold/forecast",
        "gold/keep_alive",
    ),
)


def gather(pool: str, ask: Ask, *, now_ms: int, progress: Progress) -> content.ReportContent:
    """Return what the tables say; without evidence, which is the recommendation's.

    `progress` is called before each part.
    """
    parts = ((part, number, len(PARTS)) for number, part in enumerate(PARTS, 1))
    progress(*next(parts))
    totals = _totals(ask)
    progress(*next(parts))
    span = _span(ask)
    demand, heat = _demand(ask, span), _heat(ask, span, totals.keys)
    progress(*next(parts))
    cold, warm, slowest = _latency(ask, cold=True), _latency(ask, cold=False), _slowest(ask)
    progress(*next(parts))
    worker_hours, forecast, delays = _worker_hours(ask, span), _forecast(ask), _delays(ask)
    progress(*next(parts))
    causes, more = _causes(ask)
    rejects = _rejects(ask)
    return content.ReportContent(
        pool=pool,
        made_ms=now_ms,
        span=span,
        totals=totals,
        rejects=rejects,
        comparison=_comparison(ask),
        demand=demand,
        heat=heat,
        cold_latency=cold,
        warm_latency=warm,
        worker_hours=worker_hours,
        classes=_classes(ask),
        causes=causes,
        more_causes=more,
        key_causes=_key_causes(ask),
        failing=ask(f"select count(*) as keys from ({failing.BY_KEY}) where failing")[0]["keys"],
        slowest=slowest,
        forecast=forecast,
        delays=delays,
    )


def _totals(ask: Ask) -> content.Totals:
    (requests,) = ask(
        f"""select count(*) as requests, count(*) filter (outcome <> '{OK}') as failed,
            count(*) filter (outcome is null) as unknown from requests"""
    )
    (cold,) = ask(
        "select sum(cold)::bigint as cold, sum(waited_ms)::bigint as waited_ms, max(worst_ms) as worst_ms "
        "from cold_starts"
    )
    (time,) = ask("select sum(up_ms)::bigint as up_ms, sum(busy_ms)::bigint as busy_ms from worker_hours")
    (counts,) = ask("select (select count(*) from events) as events, (select count(*) from key_classes) as keys")
    # Nothing at all is 0.
    return content.Totals(**{name: value or 0 for name, value in (requests | cold | time | counts).items()})


def _span(ask: Ask) -> tuple[int, int] | None:
    (found,) = ask("select min(hour_ms) as first, max(hour_ms) as last from demand")
    return None if found["first"] is None else (found["first"], found["last"] + numbers.HOUR_MS)


#: What is compared: its name, unit, and the query of some days.
_MEASURES = (
    ("requests", "", "select sum(requests) from demand {days}"),
    ("cold starts", "", "select sum(cold) from demand {days}"),
    (
        "cold-start rate that a quarter of the keys exceed",
        "part",
        """select quantile_cont(rate, 0.75)
            from (select sum(cold) / sum(requests) as rate from demand {days} group by key having sum(requests) > 0)""",
    ),
    ("waiting for cold starts", "ms", "select sum(waited_ms) from cold_starts {days}"),
    ("failed requests", "", f"select count(*) filter (outcome <> '{OK}') from requests {{days}}"),
    ("failed starts", "", "select sum(failed) from starts {days}"),
    ("worker-hours", "hours", "select sum(up_ms) from worker_hours {days}"),
    ("of them idle", "hours", "select sum(idle_ms) from worker_hours {days}"),
)


def _comparison(ask: Ask) -> content.Comparison | None:
    """The last week beside the one before; of a shorter history, its second half beside its first. Whole days only."""
    (span,) = ask("select min(day) as first, max(day) as last from demand")
    if span["first"] is None:
        return None
    # The last day is still going on, or may be.
    days = min(7, (span["last"] - span["first"]).days // 2)
    if days < 1:
        return None
    until = span["last"]
    now, before = until - timedelta(days), until - timedelta(2 * days)
    stretches = ((before, now), (now, until))
    changes = []
    for name, unit, query in _MEASURES:
        parts = (query.format(days=f"where day >= '{low}' and day < '{high}'") for low, high in stretches)
        ((was, found),) = (row.values() for row in ask(f"select ({next(parts)}) as before, ({next(parts)}) as now"))
        changes.append(content.MeasureChange(name, unit, float(was or 0), float(found or 0)))
    return content.Comparison(days, str(now), str(until - timedelta(1)), changes)


def bucket_days(span: tuple[int, int]) -> int:
    """Return how many days a column over time stands for; 0 for an hour."""
    days = (span[1] - span[0]) / numbers.DAY_MS
    return next((size for size in (0, 1, 7, 28) if days / (size or 1 / 24) <= COLUMNS), 364)


def _demand(ask: Ask, span: tuple[int, int] | None) -> content.Buckets | None:
    if span is None:
        return None
    rows = 'select hour_ms as "at", cold as first, requests - cold as second from demand'
    return _over_time(ask, rows, span, bucket_days(span))


def _worker_hours(ask: Ask, span: tuple[int, int] | None) -> content.Buckets | None:
    hour, day = numbers.HOUR_MS, numbers.DAY_MS
    rows = f"""select (day - date '1970-01-01') * {day} as "at", busy_ms / {hour} as first, idle_ms / {hour} as second
        from worker_hours"""
    (found,) = ask(f'select min("at") as first, max("at") as last from ({rows})')
    if found["first"] is None or span is None:
        return None
    return _over_time(ask, rows, (found["first"], found["last"] + day), max(1, bucket_days(span)))


def _over_time(ask: Ask, rows: str, span: tuple[int, int], days: int) -> content.Buckets:
    """Sum `first` and `second` by stretch of time of `at`; longer stretches than a day give the mean of a day."""
    size = days * numbers.DAY_MS if days else numbers.HOUR_MS
    begin = span[0] - span[0] % (numbers.DAY_MS if days else numbers.HOUR_MS)
    sums = {
        row["number"]: (row["first"], row["second"])
        for row in ask(
            f"""select ("at" - {begin}) // {size} as number, sum(first)::double as first, sum(second)::double as second
                from ({rows}) group by number"""
        )
    }
    places = range(-(-(span[1] - begin) // size))
    # The last stretch may be cut off: its mean is one of the days that it has.
    parts = [max(1.0, min(size, span[1] - begin - place * size) / numbers.DAY_MS) if days else 1.0 for place in places]
    values = [[sums.get(place, (0, 0))[which] / parts[place] for place in places] for which in (0, 1)]
    name = numbers.day if days else numbers.moment
    return content.Buckets(days, [name(begin + place * size) for place in places], *values)


def _heat(ask: Ask, span: tuple[int, int] | None, keys: int) -> list[content.KeyHours]:
    if span is None:
        return []
    days = max(1, -(-span[1] // numbers.DAY_MS) - span[0] // numbers.DAY_MS)
    heaviest = f"select key from key_classes order by requests desc, key limit {HEAT_KEYS}"
    top = [row["key"] for row in ask(heaviest)]
    # A key that is not in the list is in the row of all others, whose name no key can have.
    found = ask(
        f"""select top.key as key, hour_ms % {numbers.DAY_MS} // {numbers.HOUR_MS} as hour,
                sum(requests)::bigint as n
            from demand left join ({heaviest}) as top on demand.key = top.key group by 1, 2"""
    )
    sums: dict[str | None, list[float]] = {}
    for row in found:
        sums.setdefault(row["key"], [0.0] * 24)[row["hour"]] = row["n"] / days
    rows = [content.KeyHours(shown(key), sums[key]) for key in top if key in sums]
    if None in sums:
        rows.append(content.KeyHours(f"{keys - len(top):,} other keys", sums[None]))
    return rows


def _latency(ask: Ask, *, cold: bool) -> list[content.LatencySplit]:
    parts = ("orphan_ms", "start_ms", "queue_ms", "run_ms")
    sums = ", ".join(f"sum({name})::bigint as {name}" for name in ("requests", *parts))
    rows = f"from latency where cold = {cold}"
    weight = "sum(orphan_ms + start_ms + queue_ms)" if cold else "sum(requests)"
    by_key = ask(f"select key, {sums} {rows} group by key order by {weight} desc, key limit {LATENCY_KEYS}")
    named = [("all keys", ask(f"select {sums} {rows}")[0]), *((shown(row["key"]), row) for row in by_key)]
    return [
        content.LatencySplit(name, row["requests"], *(row[part] / row["requests"] for part in parts))
        for name, row in named
        if row["requests"]
    ]


def _classes(ask: Ask) -> list[content.KeyClass]:
    rows = ask(
        """select class as name, count(*) as keys, sum(requests)::bigint as requests, sum(cold)::bigint as cold
            from key_classes group by class order by requests desc, name"""
    )
    return [content.KeyClass(**row) for row in rows]


def _causes(ask: Ask) -> tuple[list[content.Cause], tuple[int, int]]:
    (whole,) = ask("select count(*) as causes, coalesce(sum(requests), 0)::bigint as requests from failures")
    fields = ", ".join(content.Cause.__dataclass_fields__)
    top = ask(f"select {fields} from failures order by requests desc, cause limit {CAUSES}")
    listed = [content.Cause(**row) for row in top]
    return listed, (whole["causes"] - len(listed), whole["requests"] - sum(cause.requests for cause in listed))


def _key_causes(ask: Ask) -> list[content.KeyCauses]:
    # A worker that was stopped on purpose is not a cause.
    causes = """select key, what, how, error, began, sum(times)::bigint as times, max(last_ms) as last_ms,
            arg_max(example, last_ms) as example, arg_max(log, last_ms) as log
        from causes where how <> 'stopped' group by key, what, how, error, began"""
    keys = ask(
        f"""select key, coalesce(started, 0)::bigint as started, coalesce(failed, 0)::bigint as failed,
                coalesce(failed_since, 0)::bigint as failed_since, good_ms, coalesce(failing, false) as failing
            from (select key, sum(times) as times from ({causes}) group by key) left join ({failing.BY_KEY}) using (key)
            order by failing desc, times desc, key limit {CAUSE_KEYS}"""
    )
    found: dict[str, list[content.EndCause]] = {row["key"]: [] for row in keys}
    top = ask(
        f"""from ({causes}) select * qualify row_number() over (partition by key order by times desc, last_ms desc,
            what, how, error, began) <= {KEY_CAUSES} order by times desc, last_ms desc, what, how, error, began"""
    )
    for row in top:
        if (key := row.pop("key")) in found:
            found[key].append(content.EndCause(**row))
    return [content.KeyCauses(**row, causes=found[row["key"]]) for row in keys]


def _slowest(ask: Ask) -> list[tuple[str, int, int]]:
    # Where most starts fail, callers wait for what never comes: `_key_causes` has those keys.
    rows = ask(
        f"""select key, sum(cold)::bigint as cold, sum(waited_ms)::bigint as waited from cold_starts
            where key not in (select key from ({failing.BY_KEY}) where failing or failed > started)
            group by key having waited > 0 order by waited desc, key limit 3"""
    )
    return [(row["key"], row["cold"], row["waited"]) for row in rows]


def _forecast(ask: Ask) -> content.Forecast | None:
    rows = ask("from forecast order by class, hour limit 1000")
    if not rows:
        return None
    hours = [
        content.HourForecast(
            row["class"], row["hour"], row["requests"], row["requests_high"], row["workers"], row["workers_high"]
        )
        for row in rows
    ]
    return content.Forecast(str(rows[0]["day"]), rows[0]["days_of_history"], hours)


def _delays(ask: Ask) -> list[tuple[int, int, int]]:
    rows = ask(
        """select delay_ms, sum(cold)::bigint as cold, sum(up_ms)::bigint as up_ms from keep_alive
            group by delay_ms order by delay_ms limit 200"""
    )
    return [(row["delay_ms"], row["cold"], row["up_ms"]) for row in rows]


def _rejects(ask: Ask) -> list[tuple[str, int]]:
    rows = ask("select reason, count(*) as n from rejects group by reason order by n desc, reason limit 20")
    return [(row["reason"], row["n"]) for row in rows]
