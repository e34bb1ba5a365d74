"""What is imported by a command is not scanned by the garbage collector."""

from __future__ import annotations

import subprocess
import sys

from osrdyne_runtime.console import imports

#: In a process of its own: what is frozen stays so.
_PROGRAM = f"""
import gc
from {imports.__name__} import uncollected
with uncollected():
    import email.message
    within = gc.isenabled()
print(within, gc.isenabled(), gc.get_freeze_count() > 1000)
gc.disable()
with uncollected():
    pass
print(gc.isenabled())
"""


def test_garbage_is_not_collected_during_imports_and_modules_are_frozen_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True", "False"]
