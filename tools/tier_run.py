"""One tier of tests on its way: its pytest, with a folder of its own, and what its output says of how it ended."""

import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import contained
import noted
import steps

#: pytest's exit code for "no test was selected".
NOTHING_SELECTED = 5
CLOSING_LINE = re.compile(r"^=*\s*(?P<counts>(?:\d+ [a-z]+(?:, )?)+) in (?P<seconds>[\d.]+)s")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
#: How many tests run: with pytest-xdist, where some are deselected, and where none is.
SELECTED = re.compile(r"workers? \[(\d+) items?\]|/ (\d+) selected|collected (\d+) items?$", re.MULTILINE)
#: Outcomes in a line, one character each; the line begins with a file where there is one process.
OUTCOMES = re.compile(r"^(?:\S+\.py )?([.FEsxX]+)(?= |$)", re.MULTILINE)
#: What a tier's output says of a failure in one line: pytest's summary, tools/contained.py.
TELLING = ("FAILED tests/", "ERROR tests/", contained.LEFT_BEHIND)


@dataclass
class Run:
    """A tier on its way: its pytest, and what that has printed so far."""

    tier: str
    process: subprocess.Popen[bytes]
    folder: Path
    output: Path
    started: float
    shown: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    code: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    #: Ids of the tests that failed.
    failed_tests: list[str] = field(default_factory=list)
    #: Ids of those that passed when they were run once more.
    flaky: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True when a test or pytest failed, or something was left behind; to select nothing is not a failure."""
        return self.code not in (0, NOTHING_SELECTED)

    @property
    def notes(self) -> Path:
        """The file in which its pytest notes which tests have begun, ended and failed."""
        return self.folder.with_suffix(".notes")

    def text(self) -> str:
        """What pytest has printed since the last call."""
        with self.output.open("rb") as file:
            file.seek(self.shown)
            new = file.read()
        self.shown += len(new)
        return new.decode(errors="replace")

    def progress(self) -> str:
        """How far it is: pytest's own figure comes at the end of a line, which may take all of a tier."""
        percent = percent_of(self.output.read_text(errors="replace"))
        return noted.progress(self.tier, percent, noted.read(self.notes), time.monotonic())


def start(tier: str, pytest: list[str], **variables: str) -> Run:
    """Start one tier, with a folder of its own for temporary files. A short name: sockets are made below it.

    `variables` are added to the environment.
    """
    folder = Path(tempfile.gettempdir(), f"osr-{secrets.token_hex(4)}")
    folder.mkdir()
    # Like /tmp itself: tests start programs as other users, too.
    folder.chmod(0o1777)
    output, notes = folder.with_suffix(".log"), folder.with_suffix(".notes")
    with output.open("wb") as file:
        process = subprocess.Popen(
            [str(steps.BIN / "python"), str(steps.ROOT / "tools/contained.py"), str(folder), *pytest],
            cwd=steps.ROOT,
            env=steps.environment(PYTHONUNBUFFERED="1", **{noted.NOTES: str(notes)}, **variables),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    return Run(tier, process, folder, output, time.monotonic())


def ended(run: Run) -> bool:
    """Whether a tier has ended, and if so, how: that is noted once."""
    before = os.times()
    if run.process.poll() is None:
        return False
    after = os.times()
    run.cpu = after.children_user + after.children_system - before.children_user - before.children_system
    run.code, run.seconds = run.process.returncode, time.monotonic() - run.started
    for line in run.output.read_text(errors="replace").splitlines():
        run.counts = counts_of(line) or run.counts
        if COLOUR.sub("", line).startswith(TELLING):
            run.failures.append(COLOUR.sub("", line))
    run.failed_tests = noted.read(run.notes).failed
    run.notes.unlink(missing_ok=True)
    # What tests wrote and printed shows why one failed: it stays then.
    if not run.failed:
        shutil.rmtree(run.folder, ignore_errors=True)
    return True


def percent_of(output: str) -> int:
    """How many of the tests that were selected pytest has shown an outcome of, in percent."""
    text = COLOUR.sub("", output)
    counts = SELECTED.search(text)
    if counts is None:
        return 0
    done = sum(len(outcomes) for outcomes in OUTCOMES.findall(text))
    return min(100, 100 * done // max(1, int(next(filter(None, counts.groups())))))


def counts_of(line: str) -> dict[str, int]:
    """The outcomes that a closing line of pytest names; empty for any other line."""
    found = CLOSING_LINE.match(COLOUR.sub("", line))
    if not found:
        return {}
    pairs = (part.split(" ", 1) for part in found["counts"].split(", "))
    return {outcome: int(number) for number, outcome in pairs}
