"""The worker command of the pool: becomes the kind of worker that the key's name says.

Started as `python -I -S -E`, as the smallest of them wants it; cold keys start many.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TESTBED = Path(__file__).parents[1] / "testbed"
KEY = os.environ["WORKER_KEY"]


def become(*command: str) -> None:
    os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 - there is no shell to be had here


if KEY.startswith("cold-"):
    become("-I", "-S", "-E", f"{TESTBED}/minimal_worker.py")
become(f"{TESTBED}/library_worker.py" if KEY.startswith("library-") else f"{TESTBED}/scripted_worker.py")
