"""Blocks of free ports, reserved between the test runs of one machine."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from pathlib import Path
from typing import TextIO

#: Ports in a block: a broker needs six.
SIZE = 8
#: Below the range that Linux gives to outgoing connections: none of those takes a port between two starts.
FIRST, LAST = 20000, 31999


class PortBlock:
    """`SIZE` neighbouring ports of 127.0.0.1 that no other test run will choose until `release`.

    The reservation is a locked file, whose lock the kernel releases when this process ends, however it ends.
    """

    def __init__(self) -> None:
        # Not below TMPDIR, which differs between the runs that must know of each other.
        folder = Path("/tmp", f"osrdyne-ports-{os.getuid()}")
        folder.mkdir(exist_ok=True)
        for first in random.sample(range(FIRST, LAST - SIZE, SIZE), 200):
            lock = (folder / str(first)).open("w")
            if _locked(lock) and all(_free(port) for port in range(first, first + SIZE)):
                self._lock, self.first = lock, first
                return
            lock.close()
        raise RuntimeError(f"no {SIZE} free ports in a row between {FIRST} and {LAST}; is something listening on all?")

    def release(self) -> None:
        self._lock.close()


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
