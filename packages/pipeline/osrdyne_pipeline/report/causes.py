"""What facts say of why starts fail, workers end and handlers raise: in words, as advice, and as sections: with the
commands and addresses that show more of a key.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.cards import nothing, open_table, section, table
from osrdyne_pipeline.report.content import KEY_PLACE, EndCause, KeyCauses, ReportContent
from osrdyne_pipeline.report.element import element, shown
from osrdyne_pipeline.small.causes import LONGEST

#: Keys that are named one by one among the next steps.
NAMED = 3


@dataclass(frozen=True)
class NextStep:
    """One thing to do, why, and the command for it where there is one."""

    what: str
    why: str
    command: str | None = None


def what_happened(cause: EndCause) -> str:
    """Return what happened, without how."""
    if cause.what == "start-failed":
        return "could not be started"
    if cause.what == "handler-error":
        return "the handler failed"
    if cause.began is None:
        return "ended"
    return "ended after it had started" if cause.began else "ended before it had started"


def how(cause: EndCause) -> str:
    """Return how a worker ended, in a word or two, with the class of the error where it is known."""
    ending = "" if cause.what == "handler-error" or cause.how == "no-start" else cause.how
    return ", ".join(part for part in (ending, cause.error) if part) or "of unknown class"


def in_words(cause: EndCause) -> str:
    """Return a cause with its number: `ended before it had started: exit 1, FileNotFoundError (12 times)`."""
    times = "once" if cause.times == 1 else f"{cause.times:,} times"
    text = what_happened(cause) if cause.how == "no-start" else f"{what_happened(cause)}: {how(cause)}"
    return f"{text} ({times})"


def steps(content: ReportContent) -> Iterator[NextStep]:
    """Give the advice that follows from the causes: first of keys that cannot be started, then of the others."""
    failing = [found for found in content.key_causes if found.failing]
    for found in failing[:NAMED]:
        cause = _of_starts(found.causes)
        yield _step(found, cause, "every start fails", _since(found))
    if content.failing > NAMED:
        yield NextStep(
            f"Look at {content.failing - NAMED:,} more keys whose starts all fail",
            'The first of them are under "Why workers end".',
        )
    others = [found for found in content.key_causes if not found.failing]
    for pick, says in _KINDS:
        most = max(
            ((cause.times, found, cause) for found in others for cause in found.causes if pick(cause)),
            key=lambda each: each[0],
            default=None,
        )
        if most is not None:
            yield _step(most[1], most[2], says, in_words(most[2]).capitalize() + ".")


def _before(cause: EndCause) -> bool:
    return cause.what == "start-failed" or (cause.what == "worker-ended" and cause.began is False)


#: Which causes of keys that can be started are advice, and in which words.
_KINDS = (
    (_before, "some starts fail"),
    (lambda cause: cause.what == "worker-ended" and not _before(cause), "workers end by themselves"),
    (lambda cause: cause.what == "handler-error", "its handler fails"),
)


def _of_starts(causes: Iterable[EndCause]) -> EndCause | None:
    """The last cause of a failed start."""
    return max((cause for cause in causes if _before(cause)), key=lambda cause: cause.last_ms, default=None)


def _since(found: KeyCauses) -> str:
    times = "start has" if found.failed_since == 1 else "starts in a row have"
    if found.good_ms is None:
        return f"{found.failed_since:,} {times} failed; no worker of this key is known to have worked."
    return f"{found.failed_since:,} {times} failed since {numbers.moment(found.good_ms)}."


def _step(found: KeyCauses, cause: EndCause | None, says: str, why: str) -> NextStep:
    named = f", {how(cause)}" if cause is not None and cause.how != "no-start" else ""
    if cause is not None and cause.error is not None:
        named = f", {cause.error}"
    if cause is not None and cause.example:
        why += f" The last one said: {shown(cause.example, LONGEST)}."
    if cause is not None and cause.log:
        why += f" Its log: {shown(cause.log, LONGEST)}."
    return NextStep(f"{shown(found.key, 40)}: {says}{named}", why, f"osrdyne status --key {shlex.quote(found.key)}")


def why_workers_end(content: ReportContent) -> Element:
    """Return the causes by key, a line each."""
    title = "Why workers end"
    if not content.key_causes:
        return nothing(
            title, "No worker ended by itself, no start failed, and no handler raised, as far as events show."
        )
    lines = [
        element(
            "li",
            element("strong", shown(found.key, 40)),
            f": every start fails. {_causes(found)}" if found.failing else f": {_causes(found)}",
        )
        for found in content.key_causes
    ]
    head = ["key", "what", "how", "error", "times", "last (UTC)", "example", "log"]
    rows = [
        [
            shown(found.key, 40),
            what_happened(cause),
            cause.how,
            cause.error or "",
            numbers.count(cause.times),
            numbers.moment(cause.last_ms),
            shown(cause.example, LONGEST) if cause.example else "",
            shown(cause.log, LONGEST) if cause.log else "",
        ]
        for found in content.key_causes
        for cause in found.causes
    ]
    lead = "Ends of workers that were not asked for, starts that failed, and errors of handlers, of the keys with most."
    return section(title, lead, element("ul", *lines), table(head, rows))


def _causes(found: KeyCauses) -> str:
    return "; ".join(map(in_words, found.causes))


def keys_to_look_at(content: ReportContent) -> Element:
    """Return keys that fail, or make callers wait, with why and how to see more."""
    title, found = "Keys to look at", _reasons(content)
    if not found:
        return nothing(title, "No key has failures, and no caller waited for a cold start.")
    links = content.links
    head = ["key", "why", "its state", "its poison", "its log", *(["elsewhere"] if links else [])]
    rows: list[list[str | Element]] = [
        [
            shown(key, 40),
            "; ".join(why),
            element("code", f"osrdyne status --key {shlex.quote(key)}"),
            element("code", f"osrdyne poison list --pool {content.pool} --key {shlex.quote(key)}"),
            _log(content, key),
            *([_links(links, key)] if links else []),
        ]
        for key, why in found.items()
    ]
    return section(
        title, "The commands show more of a key, on a machine that reaches the daemon.", open_table(head, rows)
    )


def _reasons(content: ReportContent) -> dict[str, list[str]]:
    """Return keys in the order of the report, each with what is wrong."""
    found: dict[str, list[str]] = {}
    for each in content.key_causes:
        said = ["every start fails"] if each.failing else []
        found.setdefault(each.key, []).extend(said or map(in_words, each.causes[:1]))
    for cause in content.causes:
        found.setdefault(cause.example_key, []).append(f"requests fail: {cause.reason}")
    for key, cold, waited in content.slowest:
        waits = f"callers waited {numbers.duration(waited)} in {numbers.count(cold)} cold starts"
        found.setdefault(key, []).append(waits)
    if content.key is not None:
        return {content.key: found.get(content.key, ["the key of this page"])}
    return found


def _log(content: ReportContent, key: str) -> str:
    logs = (cause.log for each in content.key_causes if each.key == key for cause in each.causes)
    return next((shown(log, LONGEST) for log in logs if log), "not known")


def _links(links: tuple[tuple[str, str], ...], key: str) -> Element:
    words: list[Element | str] = []
    for name, address in links:
        words += [", " if words else "", element("a", name, href=address.replace(KEY_PLACE, quote(key, safe="")))]
    return element("span", *words)
