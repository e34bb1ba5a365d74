"""The process of a long-running program: what its forks do with signals, and how it ends. All processes are real."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from testbed.waiting import PATIENCE_SECONDS

#: A program that stops at a signal and says so. `body` is what it does in a thread, as handlers do, before it is ready.
PROGRAM = """
import asyncio, atexit, concurrent.futures, multiprocessing, os, signal, sys, threading, time
from osrdyne_runtime import program
{before}
def body():
{body}
    print("ready", flush=True)

async def main():
    global loop
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    program.on_stop_signal(lambda: (print("stopped", flush=True), stop.set()), once=True)
    await asyncio.to_thread(body)
    await stop.wait()

program.run(main(), "the program", grace={grace})
print("returned", flush=True)
{after}
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs. At the end of the test they are killed, with all processes that they started."""
    with contextlib.ExitStack() as stack:

        def started(
            body: str = "pass", *, before: str = "", after: str = "", grace: float = 60.0
        ) -> subprocess.Popen[str]:
            code = PROGRAM.format(
                body=textwrap.indent(textwrap.dedent(body), "    "),
                before=textwrap.dedent(before),
                after=textwrap.dedent(after),
                grace=grace,
            )
            process = stack.enter_context(
                subprocess.Popen(
                    # Python 3.12 and later warn of a fork beside threads, which is what is tested here.
                    [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
            stack.callback(_kill, process.pid)
            return process

        yield started


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def lines_until_ready(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that a program printed before it was ready."""
    assert process.stdout is not None
    said = []
    while (line := process.stdout.readline().strip()) != "ready":
        said.append(line)
        assert process.poll() is None or line, f"{said} {process.stderr and process.stderr.read()}"
    return said


def stop(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Stop a program as its driver does; return its status and what it printed."""
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output, errors


# --- forks ----------------------------------------------------------------------------------------------------

FORKS = {
    "a process of multiprocessing": """
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        child.start()
        os.kill(child.pid, signal.SIGTERM)
        child.join()
        print(child.exitcode)
        """,
    "a fork that uses nothing of ours": """
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    "a fork of a fork": """
        child = os.fork()
        if child == 0:
            grandchild = os.fork()
            if grandchild == 0:
                time.sleep(1000)
            os.kill(grandchild, signal.SIGTERM)
            os._exit(-os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
        print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
}


@pytest.mark.parametrize("fork", list(FORKS))
def test_a_signal_to_a_fork_ends_the_fork_and_does_not_stop_the_program(start: Start, fork: str) -> None:
    program = start(FORKS[fork])
    assert lines_until_ready(program) == [str(-signal.SIGTERM)]
    assert stop(program) == (0, "stopped\nreturned\n", "")


def test_a_signal_that_comes_before_a_fork_has_reset_its_handlers_ends_the_fork(start: Start) -> None:
    program = start(
        FORKS["a fork that uses nothing of ours"].replace("os.kill(child, signal.SIGTERM)", "pass"),
        before="os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))",
    )
    assert lines_until_ready(program) == [str(-signal.SIGTERM)]
    assert stop(program) == (0, "stopped\nreturned\n", "")


def test_ctrl_c_in_a_fork_raises_keyboard_interrupt_as_in_any_python_program(start: Start) -> None:
    program = start(
        """
        child = os.fork()
        if child == 0:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1000)
            except KeyboardInterrupt:
                os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        before="signal.signal(signal.SIGINT, signal.default_int_handler)",
    )
    assert lines_until_ready(program) == ["7"]
    assert stop(program) == (0, "stopped\nreturned\n", "")


def test_a_signal_that_the_program_was_started_to_ignore_is_ignored_by_its_forks(start: Start) -> None:
    # As shells start programs in the background
    program = start(
        """
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        before="signal.signal(signal.SIGINT, signal.SIG_IGN)",
    )
    assert lines_until_ready(program) == ["3"]
    assert stop(program) == (0, "stopped\nreturned\n", "")


def test_a_fork_keeps_the_handlers_that_are_the_users_and_the_program_its_blocked_signals(start: Start) -> None:
    program = start(
        """
        child = os.fork()
        if child == 0:
            os._exit(signal.getsignal(signal.SIGUSR1) is not mine or signal.SIGUSR2 not in blocked())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), [one.name for one in blocked()])
        """,
        before="""
            def mine(*_):
                pass
            def blocked():
                return signal.pthread_sigmask(signal.SIG_BLOCK, ())
            signal.signal(signal.SIGUSR1, mine)
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR2,))
            """,
    )
    assert lines_until_ready(program) == ["0 ['SIGUSR2']"]
    assert stop(program) == (0, "stopped\nreturned\n", "")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_of_processes_is_ended_and_made_again_however_they_start(start: Start, method: str) -> None:
    rounds = {"fork": 10}.get(method, 2)
    program = start(
        f"""
        for _ in range({rounds}):
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                print(sum(pool.map(abs, range(4))))
        """
    )
    assert lines_until_ready(program) == ["6"] * rounds
    assert stop(program) == (0, "stopped\nreturned\n", "")


def test_forked_processes_of_an_executor_finish_their_work_when_the_program_is_stopped(start: Start) -> None:
    program = start(
        """
        global executor, work
        context = multiprocessing.get_context("fork")
        executor = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
        work = [executor.submit(time.sleep, 0.5), executor.submit(abs, -7)]
        """,
        after="print(work[1].result(), flush=True); executor.shutdown()",
    )
    lines_until_ready(program)
    assert stop(program) == (0, "stopped\nreturned\n7\n", "")


# --- the end --------------------------------------------------------------------------------------------------

#: What holds a program up at its end: the code that does it, and the name of the thread that the error shows.
HOLD_UPS = {
    "thread": ("threading.Thread(target=time.sleep, args=(1000,), name='left behind').start()", "left behind"),
    "executor": ("concurrent.futures.ThreadPoolExecutor(1, 'left').submit(time.sleep, 1000)", "left_0"),
    "hook": ("atexit.register(time.sleep, 1000)", "none"),
    "loop": ("loop.call_soon_threadsafe(loop.run_in_executor, None, time.sleep, 1000)", "asyncio_"),
}


@pytest.mark.parametrize("grace", [0.0, 1e300])
def test_a_program_with_no_grace_or_an_endless_one_ends_in_good_order(start: Start, grace: float) -> None:
    program = start(grace=grace)
    lines_until_ready(program)
    assert stop(program) == (0, "stopped\nreturned\n", "")


@pytest.mark.parametrize("left", list(HOLD_UPS))
def test_a_program_that_something_holds_up_ends_after_its_grace_and_names_the_threads(start: Start, left: str) -> None:
    code, name = HOLD_UPS[left]
    program = start(code, grace=0.3)
    lines_until_ready(program)
    status, output, errors = stop(program)
    assert (status, output) == (os.EX_SOFTWARE, "stopped\n" if left == "loop" else "stopped\nreturned\n")
    assert errors.startswith("the program: the process is ended with status 70, because it did not end by itself")
    assert name in errors.partition("threads that go on: ")[2]


def test_what_the_program_does_after_its_end_may_take_longer_than_the_grace(start: Start) -> None:
    program = start(after="time.sleep(1.5); print('done', flush=True)", grace=0.3)
    lines_until_ready(program)
    assert stop(program) == (0, "stopped\nreturned\ndone\n", "")


def test_threads_that_end_within_the_grace_do_so(start: Start) -> None:
    program = start(after="threading.Timer(0.5, print, ['done']).start(); sys.exit(3)")
    lines_until_ready(program)
    assert stop(program) == (3, "stopped\nreturned\ndone\n", "")
