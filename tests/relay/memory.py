"""What tests of memory measure."""

from __future__ import annotations

import gc
import tracemalloc


def reachable() -> int:
    """The bytes that this process holds, of what was made since tracing began.

    Requests that broke off are parts of cycles. A process that has nothing to do keeps those until it collects garbage.
    """
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
