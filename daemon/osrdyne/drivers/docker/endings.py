"""Texts for a person about a worker's end. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from osrdyne.drivers.base import How, WorkerEnd, signal_name


def end(state: Mapping[str, Any], exit_code: int) -> WorkerEnd:
    """Return how a worker ended, as a value. Arguments as for `how`."""
    if state.get("OOMKilled"):
        return WorkerEnd(How.MEMORY, seconds=_seconds(state))
    if 128 < exit_code < 128 + signal.NSIG:
        return WorkerEnd(How.SIGNAL, exit_code - 128, seconds=_seconds(state))
    return WorkerEnd(How.EXIT, exit_code, seconds=_seconds(state))


def how(state: Mapping[str, Any], exit_code: int) -> str:
    """Return how a worker ended: status or signal, and after how long where that is known.

    `state` is that of an inspection, empty where the container is gone.
    """
    if state.get("OOMKilled"):
        ending = "was killed because it used more memory than HostConfig.Memory of the template allows"
    elif 128 < exit_code < 128 + signal.NSIG:
        ending = f"ended by {signal_name(exit_code - 128)} (status {exit_code})"
    else:
        ending = f"ended with status {exit_code}"
    seconds = _seconds(state)
    return ending if seconds is None else f"{ending} after {seconds:.1f} s"


def _seconds(state: Mapping[str, Any]) -> float | None:
    """Return how long the last run took; None where the next one has begun, or nothing is known.

    The engine may note the begin of a run after its end, when that comes at once. It gives the year 1 for no end.
    """
    try:
        began, ended = (datetime.fromisoformat(state[name]) for name in ("StartedAt", "FinishedAt"))
    except (KeyError, ValueError):
        return None
    if ended < began and (state.get("Running") or ended.year == 1):
        return None
    return max(0.0, (ended - began).total_seconds())
