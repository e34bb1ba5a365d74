"""Shows how far a replay is: on a terminal a bar that moves, elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from examples.airports import replay
from examples.airports.group_watch import GroupWatch

#: Seconds between two looks on a terminal, and between two lines elsewhere.
TERMINAL_INTERVAL_SECONDS = 0.1
LINE_INTERVAL_SECONDS = 10.0


@contextlib.contextmanager
def shown(progress: replay.Progress, watch: GroupWatch | None, console: Console) -> Iterator[None]:
    """Show the progress while the block runs, from a thread of its own: it delays no request."""
    end = threading.Event()
    show = _bar if console.is_terminal else _lines
    thread = threading.Thread(target=show, args=(progress, watch, console, end), name="display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _bar(progress: replay.Progress, watch: GroupWatch | None, console: Console, end: threading.Event) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, more="")
        while not end.wait(TERMINAL_INTERVAL_SECONDS):
            clock = f"{progress.now:%H:%M}" if progress.now else "--:--"
            bar.update(
                task,
                description=clock,
                total=progress.total,
                completed=len(progress.outcomes),
                more=_counts(progress, watch),
            )


def _lines(progress: replay.Progress, watch: GroupWatch | None, console: Console, end: threading.Event) -> None:
    begun = time.monotonic()
    while not end.wait(LINE_INTERVAL_SECONDS):
        clock = f"{progress.now:%H:%M}" if progress.now else "--:--"
        done = f"{len(progress.outcomes)}/{progress.total}"
        console.print(f"{time.monotonic() - begun:4.0f} s  {clock}  {done} answered, {_counts(progress, watch)}")


def _counts(progress: replay.Progress, watch: GroupWatch | None) -> str:
    cold = sum(outcome.cold for outcome in progress.outcomes[:])
    counts = f"{progress.outstanding} outstanding, {cold} cold starts"
    if watch is None:
        return counts
    return f"{counts}, {watch.started - watch.stopped} groups running"
