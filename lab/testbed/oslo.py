"""oslo.messaging for a comparison with the bus: `folder()` is what to put on the path of Python, with proton's.

It is the last release that has the driver for AMQP 1.0. It is installed once a machine and a version of Python, and is
not in .venv, as nothing of ours uses it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed import made_once
from testbed.suite import only_in_test_all

PINNED = Path(__file__).with_suffix(".txt")


def folder() -> Path:
    """Return the folder with the packages `oslo_messaging` and `oslo_config`, made unless it is there.

    Raises BuildFailed.
    """
    only_in_test_all("oslo.messaging, which is downloaded,")
    made_from = PINNED.read_bytes() + sys.version.encode() + Path(__file__).read_bytes()
    return made_once.folder("oslo", made_from, lambda part: made_once.install(PINNED, part, "oslo.messaging"))
