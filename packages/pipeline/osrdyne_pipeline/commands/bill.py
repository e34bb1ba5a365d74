"""`osrdyne pipeline bill`: who used the workers of a pool, for how long, and what that costs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import one_line_errors
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_runtime.console.output import CannotAsk, print_json, shown

#: The tables that are asked.
TABLES = ("gold/bill", "gold/worker_hours")
CALLER, IDLE = "caller", "idle"
UNKNOWN = "(unknown)"
#: Lines of a table for a terminal.
LINES = 20
#: How a cell of CSV begins that a spreadsheet computes, and does not show as it is.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_BYTES = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class Share:
    """What one caller used of one key's workers, or that their time was idle. Whole milliseconds."""

    key: str
    #: `caller` or `idle`.
    kind: str
    #: The user that the broker checked; None where that is not known, and of idle time.
    caller: str | None
    requests: int = 0
    cold_starts: int = 0
    worker_ms: int = 0

    def plus(self, other: Share) -> Share:
        """Return both together, with the names of this one."""
        return replace(
            self,
            requests=self.requests + other.requests,
            cold_starts=self.cold_starts + other.cold_starts,
            worker_ms=self.worker_ms + other.worker_ms,
        )


@dataclass(frozen=True)
class Rates:
    """What a worker costs and takes, where a person says so."""

    #: Of an hour of a worker, in any currency.
    price: float | None = None
    #: Memory of a worker, in bytes.
    memory: int | None = None

    def named(self, share: Share) -> dict[str, Any]:
        """Return what the command shows of a share: times in seconds, what is not known as None."""
        hours = share.worker_ms / 3_600_000
        return {
            "key": share.key,
            "kind": share.kind,
            "caller": share.caller,
            "requests": share.requests,
            "cold_starts": share.cold_starts,
            "worker_seconds": share.worker_ms / 1000,
            "memory_gib_hours": None if self.memory is None else hours * self.memory / _BYTES["g"],
            "price": None if self.price is None else hours * self.price,
        }


def shares(ask: Callable[[str], list[dict[str, Any]]], since: date | None, until: date | None) -> list[Share]:
    """Return who used what from `since` to before `until`, both days in UTC; without, of all days."""
    bounds = ((">=", since), ("<", until))
    days = " and ".join(["true", *(f"day {sign} date '{day.isoformat()}'" for sign, day in bounds if day is not None)])
    used = ask(
        f"""select key, caller, sum(requests)::bigint as requests, sum(cold)::bigint as cold_starts,
                sum(busy_ms)::bigint as worker_ms
            from bill where {days} group by key, caller order by key, caller nulls first"""
    )
    idle = ask(
        f"""select key, sum(idle_ms)::bigint as worker_ms from worker_hours where {days}
            group by key having sum(idle_ms) > 0 order by key"""
    )
    return [*(Share(kind=CALLER, **row) for row in used), *(Share(kind=IDLE, caller=None, **row) for row in idle)]


def summed(found: Iterable[Share], by: Callable[[Share], tuple[str, str, str | None]]) -> list[Share]:
    """Return shares with the same name, as `by` gives it (key, kind and caller), as one; the largest first."""
    sums: dict[tuple[str, str, str | None], Share] = {}
    for share in found:
        name = by(share)
        sums[name] = sums.get(name, Share(*name)).plus(share)
    return sorted(sums.values(), key=lambda share: (-share.worker_ms, -share.requests, share.key, share.caller or ""))


def by_caller(share: Share) -> tuple[str, str, str | None]:
    """Name a share by its caller, or as idle."""
    return "", share.kind, share.caller


def by_key(share: Share) -> tuple[str, str, str | None]:
    """Name a share by its key."""
    return share.key, "", None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day such as 2026-11-01") from None


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    since: Annotated[
        date | None, typer.Option(parser=_day, metavar="DAY", help="The first day, as 2026-11-01, in UTC.")
    ] = None,
    until: Annotated[
        date | None, typer.Option(parser=_day, metavar="DAY", help="The day after the last, as 2026-12-01.")
    ] = None,
    price: options.Price = None,
    worker_memory: Annotated[
        str | None,
        typer.Option(
            envvar="OSRDYNE_PIPELINE_WORKER_MEMORY",
            callback=lambda text: None if text is None else options.memory(text),
            metavar="SIZE",
            help="Memory of a worker, such as 512m or 2g; no event has it.",
        ),
    ] = None,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a line of CSV for each key and caller.")] = False,
) -> None:
    """Show who used the workers: worker time, requests and cold starts, by caller and by key.

    A caller is a user that the broker checked. The times of all callers and the idle time sum to that of the workers.
    """
    if json and as_csv:
        raise CannotAsk("give one of --json and --csv")
    if since is not None and until is not None and until <= since:
        raise CannotAsk(f"no day is from {since} to before {until}: give an --until that is after --since")
    place = lake_at(lake, pool)
    if not place.exists("gold/bill"):
        raise LakeError(f"there is no bill of {pool} in {place.where}: osrdyne pipeline tables makes it")
    del master  # an option of all commands; small sums need no cluster
    with SmallEngine.open(memory) as engine:
        engine.show(place, *TABLES)
        found = shares(engine.rows, since, until)
    rates = Rates(price, None if worker_memory is None else int(worker_memory[:-1]) * _BYTES[worker_memory[-1].lower()])
    if as_csv:
        _write_csv(found, rates)
        return
    whole = Share("", "", None)
    for share in found:
        whole = whole.plus(share)
    callers, keys = summed(found, by_caller), summed(found, by_key)
    if json:
        days = {"since": since and since.isoformat(), "until": until and until.isoformat()}
        parts = {"callers": callers, "keys": keys, "shares": found}
        listed = {name: [rates.named(share) for share in part] for name, part in parts.items()}
        print_json({"pool": pool, **days, "total": rates.named(whole), **listed})
        return
    _print_table("caller", callers, whole, rates, _caller)
    typer.echo("")
    _print_table("key", keys, whole, rates, lambda share: shown(share.key))


def _caller(share: Share) -> str:
    if share.kind == IDLE:
        return "(idle)"
    return UNKNOWN if share.caller is None else shown(share.caller)


def _write_csv(found: Sequence[Share], rates: Rates) -> None:
    writer = csv.DictWriter(sys.stdout, list(rates.named(Share("", "", None))), lineterminator="\n")
    writer.writeheader()
    for share in found:
        named = rates.named(share)
        writer.writerow({**named, "key": _as_text(share.key), "caller": share.caller and _as_text(share.caller)})


def _as_text(cell: str) -> str:
    """Return a cell that a spreadsheet takes for text, also where it would take it for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _print_table(what: str, parts: Sequence[Share], whole: Share, rates: Rates, name: Callable[[Share], str]) -> None:
    """Print the largest parts, the rest as one line, and the total."""
    listed = [(name(share), share) for share in parts[:LINES]]
    if rest := parts[LINES:]:
        together = Share("", "", None)
        for share in rest:
            together = together.plus(share)
        listed.append((f"{len(rest):,} more", together))
    head = (what, "requests", "cold starts", "worker-hours", "GiB-hours", "price")
    kept = [place for place in range(6) if place < 4 or (rates.memory, rates.price)[place - 4] is not None]
    rows = [head, *((text, *_numbers(share, rates)) for text, share in (*listed, ("total", whole)))]
    widths = [max(len(row[place]) for row in rows) for place in range(6)]
    for row in rows:
        cells = (f"{row[place]:>{widths[place]}}" if place else f"{row[0]:<{widths[0]}}" for place in kept)
        typer.echo("  ".join(cells).rstrip())


def _numbers(share: Share, rates: Rates) -> tuple[str, str, str, str, str]:
    named = rates.named(share)
    memory, price = named["memory_gib_hours"], named["price"]
    return (
        f"{share.requests:,}",
        f"{share.cold_starts:,}",
        f"{share.worker_ms / 3_600_000:,.3f}",
        "" if memory is None else f"{memory:,.3f}",
        "" if price is None else f"{price:,.2f}",
    )
