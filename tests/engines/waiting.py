"""Waiting for a condition of the real world, instead of sleeping for a time that is hoped to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(found: Callable[[], Found | None], *, within: float = 30.0, every: float = 0.05, what: str = "") -> Found:
    """Call `found` until it returns something true, and return that.

    Raises AssertionError after `within` seconds, which says `what` was waited for.
    """
    deadline = time.monotonic() + within
    while not (result := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or found}, last result {result!r}")
        time.sleep(every)
    return result
