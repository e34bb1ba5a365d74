"""What is opened in one process is of no use in another one, which was forked from it.

The threads of a process do not go on in its fork, so nothing moves the loop that they ran. Sockets, and what the kernel
knows of them for a loop, are shared by both: a byte that the fork writes, or a socket that its loop forgets, is missing
in the process that opened it. So what has a thread, a loop or a socket keeps a `OwnerProcess`, and asks it first.
"""

from __future__ import annotations

import os

from osrdyne_protocol.errors import OtherProcess


class OwnerProcess:
    """The process in which something was opened."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        """Have this process for its home."""
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process, and not a fork of it."""
        # The number and not a hook of `os.fork`: servers in C, such as uWSGI, fork without Python's hooks.
        return self._process == os.getpid()

    def check(self, what: str) -> None:
        """Raise OtherProcess in a fork, before anything is touched. `what` was opened, as in "this Client"."""
        if not self.is_here:
            raise OtherProcess(
                f"{what} was opened in process {self._process}, and this is its fork {os.getpid()}; "
                "open another one after the fork (docs/howto/forks.md)"
            )


#: What ends with this process, and not before.
_kept: list[object] = []


def keep(inherited: object) -> None:
    """Keep what a fork has inherited from being collected: its end would close what the other process uses."""
    _kept.append(inherited)
