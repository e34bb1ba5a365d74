"""Tiers that have ended, for tests of what comes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tier_run import Run


def run_of(tier: str, code: int = 0, **counts: int) -> Run:
    """A tier that has ended, or that is still on its way."""
    process = subprocess.Popen.__new__(subprocess.Popen)
    process.returncode = code
    return Run(tier, process, Path("x"), Path("x"), 0.0, code=code, seconds=1.0, counts=counts)


def failed(tier: str, *tests: str, code: int = 1, **counts: int) -> Run:
    """A tier in which these tests failed."""
    run = run_of(tier, code, **counts)
    run.failed_tests = [*tests]
    return run
