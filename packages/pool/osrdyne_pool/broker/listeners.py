"""Whether anything but the daemon consumes a queue of the daemon: it would take messages without an answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def problem(connections: Mapping[str, str]) -> str | None:
    """Say what is wrong where several connections consume a queue; `connections` has the user of each, by its name.

    The daemon that leads has one. A daemon that stands by has none.
    """
    if len(connections) < 2:
        return None
    shown = ", ".join(f"{user} from {name.partition(' -> ')[0]}" for name, user in sorted(connections.items()))
    return (
        f"is consumed by {len(connections)} connections ({shown}); all but the daemon's take messages that are then "
        "not answered: end them, and let only the daemon's user read this queue"
    )
