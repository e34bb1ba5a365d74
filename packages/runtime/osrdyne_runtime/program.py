"""The process of a program that runs until a signal stops it: what stops it, what its forks inherit, and its end.

Workers, the daemon and the other long-running commands use it where the process is theirs; a program of the user's
that has our `serve` on a loop of its own does not.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from osrdyne_runtime.console.streams import last_words, unfailing

#: What stops a program, and what Python does at such a signal by itself.
_DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
#: Seconds that the end of a program may take.
GRACE_SECONDS = 30.0


def on_stop_signal(stop: Callable[[], object], *, once: bool = False, hangup: bool = False) -> None:
    """Call `stop` on the running loop at SIGTERM and SIGINT, until the loop is closed.

    With `once`, a second one ends the process at once. With `hangup`, `stop` is also called at each SIGHUP, unless this
    process was started to ignore it: a terminal that goes may send several. Only the main thread hears of signals; in
    another one this does nothing. A process that is forked from here has the signals as Python has them by default, and
    ignores those that this process was started to ignore.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    _part_forks()

    def on_signal() -> None:
        stop()
        if once:
            for number in _DEFAULTS:
                loop.remove_signal_handler(number)

    for number, default in _DEFAULTS.items():
        ignored = signal.getsignal(number) is signal.SIG_IGN
        loop.add_signal_handler(number, on_signal)
        _installed[number] = signal.getsignal(number), signal.SIG_IGN if ignored else default
    if hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop)
        _installed[signal.SIGHUP] = signal.getsignal(signal.SIGHUP), signal.SIG_DFL


def run(main: Coroutine[Any, Any, None], who: str, grace: float = GRACE_SECONDS) -> None:
    """Do what `asyncio.run` does, and end the process in time afterwards, whatever threads go on.

    Once `main` is over, the loop's own threads have `grace` seconds to end. This returns then, and the caller may take
    as long as it likes. When the main thread is over, too, all that is left has `grace` seconds. After that the process
    ends with EX_SOFTWARE (70), and a line on standard error in the name of `who` says which threads went on.

    Until it returns, what standard output and error cannot take is dropped. A full disk, or a reader that has
    gone, ends no program that serves, and fails no request whose handler prints.

    In another thread than the main one it is `asyncio.run` alone: the process is the caller's.
    """
    if threading.current_thread() is not threading.main_thread():
        asyncio.run(main)
        return
    end = _End(who, grace)

    async def watched() -> None:
        try:
            await main
        finally:
            end.served.set()

    try:
        with unfailing():
            asyncio.run(watched())
    finally:
        end.closed.set()
        # The only hook that comes before Python waits for threads, those of executors included, which wait there, too.
        threading._register_atexit(end.exits.set)  # type: ignore[attr-defined]  # noqa: SLF001


def end_at_once(status: int) -> None:
    """End this process and the processes of its executors; an orderly end would wait for what hangs."""
    for child in multiprocessing.active_children():
        child.kill()
    try:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        # Also where nothing can be written any more.
        os._exit(status)


class _End:
    """Waits for the end of a program in a thread that does not hold it up."""

    def __init__(self, who: str, grace: float) -> None:
        # A second at least: to close the loop and its executor takes a moment, also where nothing is waited for.
        self._who, self._grace = who, min(max(grace, 1.0), threading.TIMEOUT_MAX)
        #: What the program does is over; its loop is closed; its main thread is over.
        self.served, self.closed, self.exits = threading.Event(), threading.Event(), threading.Event()
        # Begun now, because Python 3.12 begins no thread at its end.
        threading.Thread(target=self._watch, name="osrdyne end", daemon=True).start()

    def _watch(self) -> None:
        self.served.wait()
        if self.closed.wait(self._grace):
            self.exits.wait()
            time.sleep(self._grace)
        own = (threading.main_thread(), threading.current_thread())
        left = [thread.name for thread in threading.enumerate() if thread not in own and not thread.daemon]
        last_words(
            f"{self._who}: the process is ended with status {os.EX_SOFTWARE}, because it did not end by itself within "
            f"{self._grace:g} s; threads that go on: {', '.join(left) or 'none'}"
        )
        end_at_once(os.EX_SOFTWARE)


# --- forks ------------------------------------------------------------------------------------------------------
#
# A loop hears of a signal over a pair of sockets (signal.set_wakeup_fd). A forked process shares it: a signal to the
# child would stop the parent, and not end the child (CPython issue 94454). This also is so with the processes of
# `multiprocessing` that are forked. Those that are spawned, and all programs that are executed, begin without it.

#: By signal: the handler of this process's loop, and that of its forks.
_installed: dict[signal.Signals, tuple[Any, Any]] = {}
_forking = threading.local()


@functools.cache
def _part_forks() -> None:
    """Let each process that is forked from now on have signals of its own."""
    os.register_at_fork(before=_before_fork, after_in_parent=_unblock, after_in_child=_in_child)


def _before_fork() -> None:
    # What reaches the child before it has its own handlers waits until it has.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*_DEFAULTS, signal.SIGHUP))


def _in_child() -> None:
    for number, (handler, own) in _installed.items():
        if signal.getsignal(number) == handler:
            signal.set_wakeup_fd(-1)
            signal.signal(number, own)
    _installed.clear()
    _unblock()


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
