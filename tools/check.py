"""`make check`: every check that reads the tree without running it, each with its name and time.

All of them run, also after one has failed; the last line says which failed. `--fix` (`make format`) instead
formats the Python and fixes what ruff can fix.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import steps
from osrdyne_runtime.console.streams import guarded


@dataclass(frozen=True)
class Check:
    """A tool, and how it is called."""

    name: str
    command: list[str]


@dataclass(frozen=True)
class Outcome:
    """What a check said: exit code, output, seconds."""

    name: str
    code: int
    output: str
    seconds: float


def checks() -> list[Check]:
    """The checks, in the order in which their outcome is shown."""
    python = steps.python_files()
    return [
        Check("ruff format", ["ruff", "format", "--check", *python]),
        Check("ruff check", ["ruff", "check", "--quiet", "--output-format=concise", *python]),
        Check("mypy --strict", ["mypy", "--strict", *python]),
        Check("lint-imports", ["lint-imports", "--no-cache"]),
        # --offline: nothing is fetched, all collections come with the ansible package.
        Check("site", ["python", "tools/site_of_docs.py", "--check"]),
        Check("ansible-lint", ["ansible-lint", "--offline", "--strict", "-q"]),
        Check(
            "yamllint",
            ["yamllint", "--strict", *steps.tracked(".yml", ".yaml"), ".yamllint", ".ansible-lint"],
        ),
    ]


def roles_import_from() -> list[str]:
    """Folders of the roles that scripts find their modules in; mypy looks there too."""
    return [str(folder) for folder in steps.ROOT.glob("roles/*/files")]


def run(check: Check) -> Outcome:
    """Run one check to its end."""
    started = time.monotonic()
    done = subprocess.run(
        check.command,
        cwd=steps.ROOT,
        env=steps.environment(ANSIBLE_HOME=str(steps.VENV / "ansible"), MYPYPATH=os.pathsep.join(roles_import_from())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Outcome(check.name, done.returncode, done.stdout.strip(), time.monotonic() - started)


def fix() -> None:
    """Let ruff repair what it can; what it cannot stays for `make check` to show."""
    python = steps.python_files()
    for command in (["ruff", "check", "--quiet", "--fix-only", *python], ["ruff", "format", *python]):
        subprocess.run(command, cwd=steps.ROOT, env=steps.environment(), check=True)


def main() -> None:
    """Run all checks, two at a time; exit with an error when one failed."""
    if sys.argv[1:] == ["--fix"]:
        fix()
        return
    started = time.monotonic()
    failed = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for outcome in pool.map(run, checks()):
            if outcome.code:
                failed.append(outcome.name)
                print(outcome.output)
            print(
                f"check: {outcome.name:<14} {'FAILED' if outcome.code else 'ok':<6} {outcome.seconds:6.1f} s",
                flush=True,
            )
    seconds = time.monotonic() - started
    if failed:
        steps.stop(f"failed: {', '.join(failed)} (in {seconds:.1f} s)")
    print(f"check: all passed in {seconds:.1f} s")


if __name__ == "__main__":
    with guarded("check"):
        main()
