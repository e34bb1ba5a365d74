"""How a command imports its modules.

Imported modules make hundreds of thousands of objects, and none of them is garbage. Python's collector looks at them
again and again meanwhile, which takes a quarter of the time that the daemon needs to start.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
