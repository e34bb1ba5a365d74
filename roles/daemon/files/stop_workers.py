"""Stops the worker processes of a pool whose daemon has been stopped for good.

Reads the records that the daemon's subprocess driver keeps in its state directory; signals only processes that still
are what their record says (boot, process id, start time). SIGTERM first, SIGKILL after `--grace` seconds. Prints how
many there were. Standard library only: it runs on the managed machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("state_directory", type=Path)
    parser.add_argument("--grace", type=float, default=30.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--check", action="store_true", help="only count them")
    arguments = parser.parse_args()
    workers = living(arguments.state_directory)
    print(len(workers))
    if arguments.check:
        return 0
    send(workers, signal.SIGTERM)
    deadline = time.monotonic() + arguments.grace
    while (workers := living(arguments.state_directory)) and time.monotonic() < deadline:
        time.sleep(0.1)
    send(workers, signal.SIGKILL)
    return 0


def living(directory: Path) -> list[int]:
    """Process ids of the workers that run."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    found = []
    for path in directory.glob("*/*.json"):
        try:
            record = json.loads(path.read_text())
            pid, ticks = record["pid"], record["start_ticks"]
        except (OSError, ValueError, KeyError) as error:
            print(f"{path} cannot be read, its worker is left alone: {error}", file=sys.stderr)
            continue
        if pid and record.get("boot_id") == boot and started_at(pid) == ticks:
            found.append(pid)
    return found


def started_at(pid: int) -> int | None:
    """Start time in clock ticks since boot (field 22 of proc(5)'s stat); None for a process that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def send(workers: list[int], number: signal.Signals) -> None:
    for pid in workers:
        # A worker leads a process group of its own; killed, it takes along what it had started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number) if number == signal.SIGKILL else os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main())
