"""A status document as a table for a person. Pure except for `console` and `live`, which know the terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from osrdyne_runtime.console.output import printable, shown

#: What each state of a daemon means, for a person on call.
_STATE_MEANINGS = {
    "connecting": "trying to reach the broker",
    "standby": "another daemon leads and knows the keys; this one takes over when that ends",
    "preparing": "holds the lock, looks at what there is",
    "leading": "acts",
    "waiting": "cannot act, and tries again by itself; workers go on",
}
_STYLES = {
    "failed": "bold red",
    "unserved": "bold red",
    "ready": "green",
    "starting": "yellow",
    "leading": "green",
    "waiting": "bold red",
}

#: Width in characters where the output is not a terminal: nothing is cut, because a program may read it.
_NO_TERMINAL_WIDTH = 4000


def console() -> Console:
    """Return a console of the terminal's width, or so wide that no cell is cut."""
    return Console(width=None if sys.stdout.isatty() else _NO_TERMINAL_WIDTH, highlight=False)


@contextmanager
def live(*, silent: bool) -> Iterator[Callable[[RenderableType | str], None]]:
    """Yield a function that shows the next state: in place on a terminal, one after the other elsewhere."""
    screen = console()
    if silent or not screen.is_terminal:
        yield screen.print
        return
    with Live(console=screen, auto_refresh=False) as display:
        yield lambda what: display.update(Text(what) if isinstance(what, str) else what, refresh=True)


def render(document: dict[str, Any], key: str | None = None) -> RenderableType:
    """Return the daemon's state over a table of keys; `key` is the only one that was asked for, if any."""
    keys, ends = document["keys"], [] if key is None else [_end(end) for end in document.get("ends", ())]
    acts = document.get("state") == "leading"
    if keys:
        old = [] if acts else [Text("the keys as this daemon last knew them:")]
        return Group(_daemon(document), *old, _table(keys), *ends)
    if not acts:
        empty = "ask the daemon that leads about keys" if document.get("state") == "standby" else "no key is known yet"
    elif key is not None:
        why = " now; how they ended:" if ends else ": it was not called lately"
        empty = f"key {shown(key)} has no queue and no workers{why}"
    else:
        empty = "no key has a queue or workers: no key was called lately"
    return Group(_daemon(document), Text(empty), *ends)


def span(seconds: float | None) -> str:
    """Return a duration to be read at a glance: `42s`, `9m58s`, `1h30m`; `-` for none."""
    if seconds is None:
        return "-"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _daemon(document: dict[str, Any]) -> Text:
    state = printable(document.get("state"))
    head = f"pool {printable(document.get('pool'))}, instance {printable(document.get('instance'))}: "
    line = Text(head).append(state, style=_STYLES.get(state, ""))
    line.append(f" ({_STATE_MEANINGS[state]})" if state in _STATE_MEANINGS else "")
    if document.get("detail"):
        line.append(f"\nwhy: {printable(document['detail'])}", style="red")
    if document.get("alarm"):
        why = printable(document["alarm"])
        line.append(f"\nbroker alarm ({why}): it takes no publishes until that is over, and all wait", style="red")
    if document.get("uncounted"):
        line.append(f"\nmessages are not counted: {printable(document['uncounted'])}", style="red")
    line.append(f"\nmessages in {_depths(document.get('queues') or {})}")
    for warning in document.get("warnings") or ():
        line.append(f"\nwarning: {printable(warning)}", style="yellow")
    if refused := document.get("refused"):
        counts = ", ".join(f"{printable(why)} {count}" for why, count in refused.items())
        line.append(f"\nrequests for new keys that were refused: {counts}")
    line.append(f"\ndriver {printable(document.get('driver'))}, {len(document['keys'])} key(s)")
    return line.append(f", message counts {_age(document.get('counts_age'))}" if document["keys"] else "")


def _age(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"up to {span(math.ceil(seconds))} old"


def _depths(queues: dict[str, Any]) -> str:
    known = (f"{printable(name)} {'unknown' if queue is None else queue}" for name, queue in queues.items())
    return ", ".join(known) or "the pool's queues unknown"


def _table(keys: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("key", "state"):
        table.add_column(name, overflow="fold")
    for name in ("ready", "unacked", "consumers", "workers", "unbinds in", "stops in"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last error", overflow="fold")
    for key in keys:
        state = printable(key.get("state"))
        counts = (key.get(name) for name in ("ready", "unacknowledged", "consumers", "workers"))
        table.add_row(
            Text(shown(key["key"])),
            Text(state, style=_STYLES.get(state, "")),
            *("-" if count is None else str(count) for count in counts),
            span(key.get("unbinds_in")),
            span(key.get("stops_in")),
            Text(printable(key.get("last_error") or _remade(key.get("queue_remade_ago")))),
        )
    return table


def _end(end: dict[str, Any]) -> Text:
    """Return how one worker ended: a line, and the last lines that it wrote."""
    facts = [f"{span(end.get('ago'))} ago", printable(end.get("event")), printable(end.get("how"))]
    if end.get("ran_seconds") is not None:
        facts.append(f"ran {span(end['ran_seconds'])}")
    if end.get("started") is not None:
        facts.append(f"{'after' if end['started'] else 'before'} started")
    if end.get("held"):
        facts.append(f"held {end['held']} request(s)")
    text = Text(f"{', '.join(facts)}: {printable(end.get('reason'))}")
    for line in end.get("output") or ():
        text.append(f"\n    {printable(line)}")
    return text


def _remade(ago: float | None) -> str:
    return "-" if ago is None else f"none now; {span(ago)} ago its queue, lost by the broker, was created again"
