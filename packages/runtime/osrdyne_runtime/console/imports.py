"""How a program imports its modules, and what it says where a library that is installed by choice is missing.

Imported modules make hundreds of thousands of objects, and none of them is garbage. Python's collector looks at them
again and again meanwhile, which takes a quarter of the time that the daemon needs to start.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from osrdyne_protocol.errors import OsrdyneError


class NotInstalled(OsrdyneError, ModuleNotFoundError):
    """A library is missing that is installed by choice; the text names the extra that brings it."""

    def __init__(self, library: str, requirement: str) -> None:
        super().__init__(f"{library} is not installed; install {requirement}")
        self.name = library


@contextmanager
def extra(requirement: str) -> Iterator[None]:
    """Import within what an extra brings, such as `osrdyne[docker]`. Raises NotInstalled, which names that extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotInstalled((error.name or str(error)).partition(".")[0], requirement) from error


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within, and leave what is there at the end out of all later collections."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()
