"""Two versions of osrdyne, each in an environment of its own, and a program of each that calls all the time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]

import release
import setup
import steps
from testbed.distributions import Environment
from testbed.waiting import until

KEYS = 4
#: Calls each key again and again until its input ends, and writes who answered and how long it took.
_CALLER = """
import json, os, sys, threading, time
{imports}

ended = threading.Event()

def call(key):
    while not ended.wait({pause}):
        began = time.monotonic()
        try:
            answer = client.call({key}, b"", timeout=60).body.decode()
        except Exception as error:
            answer = repr(error)
        print(json.dumps([key, answer, time.monotonic() - began]), flush=True)

with {client} as client:
    threads = [threading.Thread(target=call, args=(key,)) for key in sys.argv[1:]]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
"""


@dataclass(frozen=True)
class Version:
    """A version in an environment, and the tree that it was made of."""

    environment: Environment
    tree: Path

    @property
    def python(self) -> str:
        return self.environment.program("python")

    @property
    def name(self) -> str:
        return self.environment.place.parent.name


def install(tree: Path, place: Path, *packages: str) -> Version:
    """Make an environment with packages of a tree; what others made is what its lock pins."""
    wheels = place / "wheels"
    wheels.mkdir(parents=True)
    for project in [*tree.glob("packages/*/pyproject.toml"), *tree.glob("[di]*/pyproject.toml")]:
        make_wheel_in(project, wheels)
    made = Environment(place / "environment")
    uv = str(steps.BIN / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(made.place)], check=True)
    where = ["--find-links", str(wheels), "--constraint", str(tree / "requirements.lock")]
    where += ["--python", made.program("python")]
    command = [uv, "pip", "install", "--quiet", *where, *packages]
    subprocess.run(command, check=True, env=steps.environment(**setup.pip_settings()))
    return Version(made, tree)


def commit_before() -> str:
    """Return the commit of the newest release that is not this one."""
    now = release.git("rev-parse", "HEAD")
    return next(commit for commit in map(release.commit_of, release.released()) if commit != now)


def tree_before(place: Path) -> Path:
    """Unpack the newest release that is not this one, of its own commit."""
    archive = subprocess.run(
        ["git", "archive", commit_before()], cwd=steps.ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "--extract", "--directory", place], input=archive, check=True)
    return place


@dataclass
class Answers:
    """What callers wrote down: key, answer, and seconds of each call."""

    lines: list[tuple[str, str, float]] = field(default_factory=list)

    def workers(self) -> dict[str, list[str]]:
        """The workers that answered each key, in their order."""
        found: dict[str, list[str]] = {}
        for key, answer, _ in self.lines:
            if answer not in (seen := found.setdefault(key, [])):
                seen.append(answer)
        return found


@dataclass(frozen=True)
class Caller:
    """How a program calls."""

    imports: str
    client: str
    key: str = "key"
    #: Seconds between two calls of a key.
    pause: float = 0.02

    @contextmanager
    def called(
        self, version: Version, folder: Path, variables: Mapping[str, str], name: str | None = None
    ) -> Iterator[Answers]:
        """Have a client of a version call keys until the end of the context; then all its answers are there.

        `name` begins the names of its keys: those of two clients of one version differ.
        """
        with self.called_by([version.python], name or version.name, folder, variables) as answers:
            yield answers

    @contextmanager
    def called_by(
        self, python: Sequence[str], name: str, folder: Path, variables: Mapping[str, str]
    ) -> Iterator[Answers]:
        """Do the same with a client whose Python is started by a command."""
        answers, keys = Answers(), [f"{name}-{number}" for number in range(KEYS)]
        file = folder / f"{name}.jsonl"
        program = _CALLER.format(imports=self.imports, client=self.client, key=self.key, pause=self.pause)
        with file.open("wb") as output:
            command = [*python, "-c", program, *keys]
            caller = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=output)
        try:
            until(lambda: {key for key, *_ in lines(file)} == {*keys}, what="answers")
            yield answers
        finally:
            assert caller.stdin is not None
            caller.stdin.close()
            assert caller.wait(timeout=90) == 0
            answers.lines += lines(file)


def lines(file: Path) -> list[tuple[str, str, float]]:
    """Return what a caller has written down."""
    return [tuple(json.loads(line)) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def last_answers(folder: Path) -> dict[str, str]:
    """Return the last answer of each key of all callers."""
    return {key: answer for file in folder.glob("*.jsonl") for key, answer, _ in lines(file)}
