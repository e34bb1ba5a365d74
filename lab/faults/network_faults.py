"""Faults of the network between the broker and those who use it."""

from __future__ import annotations

from random import Random

from faults.rig import Rig
from faults.timing import HEARTBEAT_SECONDS

SIDES = ("daemon", "client", "worker")
#: Seconds by which everything is late while it is delayed, and for which that lasts.
DELAY_SECONDS, DELAY_LASTS_SECONDS = 0.25, 3.0
#: Seconds after which the last of two heartbeats is missed, with a margin.
SILENCE_LASTS_SECONDS = 2 * HEARTBEAT_SECONDS + 1.0


def connections_cut(rig: Rig, random: Random) -> str:
    sides = _sides(random)
    rig.proxy.cut(*sides)
    return " and ".join(sides)


def connections_delayed(rig: Rig, random: Random) -> str:
    sides = _sides(random)
    rig.proxy.delay(DELAY_SECONDS, *sides)
    rig.wait(DELAY_LASTS_SECONDS)
    rig.proxy.delay(0, *sides)
    return f"{' and '.join(sides)} by {DELAY_SECONDS:g} s"


def connections_half_open(rig: Rig, random: Random) -> str:
    """Nothing passes and neither end hangs up; what has no heartbeat to notice it is cut at the end."""
    sides = _sides(random)
    rig.proxy.silence(*sides)
    rig.wait(SILENCE_LASTS_SECONDS)
    rig.proxy.drop_silenced()
    return " and ".join(sides)


def _sides(random: Random) -> list[str]:
    return random.choice([*([side] for side in SIDES), list(SIDES)])
