"""Which tests of the bus `make test` runs: those that need no proton, which is compiled."""

from __future__ import annotations

import os

from testbed.suite import SUITE

collect_ignore = ["on_peers"] if os.environ.get(SUITE) == "test" else []
