"""A command that is the first process of a container (PID 1): it does what an init does, and its work in a child.

Linux gives orphaned processes to PID 1, and they stay zombies until it waits for them. A program cannot wait for any
child without taking those away that subprocess, asyncio and multiprocessing wait for: so another process does it.
"""

from __future__ import annotations

import os
import signal

#: `si_code` of a signal that the kernel sends, as for a key of the terminal: it goes to all of the foreground.
_BY_KERNEL = 128


def go_on_in_child() -> None:
    """Return at once, in this process, unless it is PID 1. Then return in a child.

    PID 1 passes signals on to that child, waits for every process that ends, and ends with the child's status. Call it
    before anything has a thread.
    """
    if os.getpid() != 1:
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        come = signal.sigwaitinfo(signal.valid_signals())
        if come.si_signo == signal.SIGCHLD:
            _reap(child)
        elif come.si_code != _BY_KERNEL:
            os.kill(child, come.si_signo)


def _reap(child: int) -> None:
    """Wait for all that has ended; end this process, and so all others, where it is the child."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == 0:
            return
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
