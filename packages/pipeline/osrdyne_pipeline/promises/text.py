"""What became of the last change, as lines for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from osrdyne_pipeline.promises.changes import AppliedChange
from osrdyne_pipeline.promises.verdict import BROKEN, NOT_MADE, Measure, PromiseComparison, Review
from osrdyne_pipeline.recommendation.text import SHOWN, ratio
from osrdyne_runtime.console.output import shown

#: What to know about a verdict.
HINTS = {
    NOT_MADE: "what came is what the settings before do: deploy the change, or see why the daemon has not taken it",
}


def moment(seconds: float) -> str:
    """Return a time as people read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")


def render(change: AppliedChange, found: Review, *, by_hand: bool = False) -> str:
    """Return the lines, without a newline at the end."""
    what = "the change" if change.promise is not None else "going back"
    days = {0: "no whole day", 1: "1 whole day"}.get(found.days, f"the last {found.days} whole days")
    lines = [f"{what} of {moment(change.at)}, {days} since: {found.verdict}"]
    if found.total is not None:
        lines += _table(found.total, promised=change.promise is not None)
        broken = [(key, compared) for key, compared in found.keys if compared.verdict == BROKEN]
        lines += [f"  {shown(key)}: {_key(compared)}" for key, compared in broken[:SHOWN]]
        if len(broken) > SHOWN:
            lines.append(f"  and {len(broken) - SHOWN} more keys")
        lines += notes(change, found, by_hand=by_hand)
    return "\n".join(lines)


def notes(change: AppliedChange, found: Review, *, by_hand: bool = False) -> list[str]:
    """Return what follows from a comparison, a sentence each."""
    sentences = [HINTS[found.verdict]] if found.verdict in HINTS else []
    if by_hand:
        sentences.append(
            "the file has other settings than this change: they were changed since, and nothing is taken back"
        )
        return sentences
    total = found.total
    if total is None or change.promise is None:
        return sentences
    if total.cold.other_calls or total.hours.other_calls:
        sentences.append(
            "people call in other ways than before: on the calls that came, cold starts would be "
            f"{_part(total.cold)} and worker-hours {_part(total.hours)} of before"
        )
    if found.worse_than_before:
        sentences.append("with the calls that came, the settings before would have done better")
    if found.back:
        sentences.append("going back to the settings before is proposed")
    elif found.back_keys:
        keys = "1 key" if len(found.back_keys) == 1 else f"{len(found.back_keys)} keys"
        sentences.append(f"going back to the settings before is proposed for {keys}")
    return sentences


def _table(total: PromiseComparison, *, promised: bool) -> list[str]:
    rows = [["", "promised", "before", "expected", "from", "to", "came"]]
    for name, each in (("cold starts", total.cold), ("worker-hours", total.hours)):
        part = ratio(each.promised) if promised else "as before"
        numbers = [each.before, each.expected, each.low, each.high]
        rows.append([name, part, *map(_number, numbers), "not known" if each.came is None else _number(each.came)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _key(one: PromiseComparison) -> str:
    parts = [
        f"{name} {_number(each.came)}, expected {_number(each.expected)} (at most {_number(each.high)})"
        for name, each in (("cold starts", one.cold), ("worker-hours", one.hours))
        if each.came is not None and each.worse
    ]
    return "; ".join(parts)


def _part(one: Measure) -> str:
    return f"{one.expected / one.before:.2f}" if one.before else "as many"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
