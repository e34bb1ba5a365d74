"""What pytest notes of a tier's tests while it runs: which have begun, ended and failed (tests/conftest.py)."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

#: Variable that names the file, a line of JSON for each note.
NOTES = "OSRDYNE_TEST_NOTES"
BEGUN, ENDED, FAILED = "begun", "ended", "failed"
#: Seconds after which the progress of a tier names a test that runs.
LONG_SECONDS = 20.0
#: Characters of a test's name that it shows.
SHOWN = 60


@dataclass
class Notes:
    """What is noted so far."""

    #: Ids of the tests that failed.
    failed: list[str] = field(default_factory=list)
    #: When the tests that run now have begun, by the monotonic clock.
    running: dict[str, float] = field(default_factory=dict)


def note(file: Path, what: str, test: str) -> None:
    """Add a note."""
    with file.open("a") as notes:
        notes.write(f"{json.dumps([what, without_group(test), time.monotonic()])}\n")


def read(file: Path) -> Notes:
    """What a file says; nothing where there is none yet."""
    return noted(file.read_text() if file.exists() else "")


def noted(text: str) -> Notes:
    """What notes add up to. The last line may not be there whole."""
    failed, running = set(), {}
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        what, test, seconds = json.loads(line)
        if what == BEGUN:
            running[test] = seconds
        elif what == ENDED:
            running.pop(test, None)
        else:
            failed.add(test)
    return Notes(sorted(failed), running)


def progress(tier: str, percent: int, said: Notes, now: float) -> str:
    """How far a tier is, how many of its tests have failed, and which take long."""
    failed = [f"{len(said.failed)} failed"] if said.failed else []
    long = sorted((now - begun, test) for test, begun in said.running.items() if now - begun >= LONG_SECONDS)
    names = [f"{test.rpartition('::')[2][:SHOWN]} for {seconds:.0f} s" for seconds, test in reversed(long)]
    return ", ".join([f"{tier} {percent} %", *failed, *names])


def without_group(test: str) -> str:
    """The id of a test; pytest-xdist puts the name of its group behind that."""
    return test.rpartition("@")[0] if test.rfind("@") > test.rfind("]") else test
