"""`make test-machines`: the README's two commands as written, on a bare machine of each release that it names.

It runs what is committed. Words of the command line choose releases: `make test-machines ARGS=trixie`. Each machine has
Python, git and make, and is removed at the end; what its commands printed stays in a folder that is named. Ends with a
table, and with an error where a command failed.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import steps
import superuser
from osrdyne_runtime.console.streams import guarded
from testbed.bare_machine import CHECKOUT, HOME, BareMachine, Outcome

#: Releases that the README names.
MACHINES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
#: Seconds for one command. The README says ten minutes for the tests, on a quick machine and with what they install.
LIMIT_SECONDS = 3600.0
#: The two most useful lines of the output: that of the demo, and that of pytest.
_TELLING = re.compile(r"^(?:=+ )?(demo: requests.*|\d+ \w+.* in [\d.]+s)(?: =+)?$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """What the table says of one command."""

    machine: str
    python: str
    command: str
    passed: bool
    seconds: int
    outcome: str


def readme_commands(page: str) -> list[str]:
    """The commands of the README's section `Two commands`, as a reader types them."""
    section = page.split("\n## Two commands\n", 1)[1].split("\n## ", 1)[0]
    block = re.search(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    if block is None:
        steps.stop("README.md has no commands in its section `Two commands`")
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


def telling(outcome: Outcome) -> str:
    """The line that says how a command ended: its closing line, or its last one."""
    if outcome.code is None:
        return f"ended after {outcome.seconds:.0f} s"
    found = _TELLING.findall(re.sub(r"\x1b\[[\d;]*m", "", outcome.output))
    lines = outcome.output.split("\n") if outcome.output.strip() else ["no output"]
    last = next(line for line in reversed(lines) if line.strip())
    text = found[-1] if found else last.strip()
    return text if outcome.code == 0 else f"status {outcome.code}: {text}"


def try_machine(suite: str, commands: list[str], folder: Path) -> list[Row]:
    """Run the commands on a bare machine of a release."""
    rows = []
    with BareMachine(suite) as machine:
        asked = ["python3 --version", *commands]
        python = ""
        for number, outcome in enumerate(machine.run(*asked, limit=LIMIT_SECONDS)):
            if number == 0:
                python = outcome.output.strip().removeprefix("Python ")
                continue
            (folder / f"{suite}-{number}.log").write_text(outcome.output)
            passed = outcome.code == 0
            row = Row(MACHINES[suite], python, outcome.command, passed, round(outcome.seconds), telling(outcome))
            print(
                f"machines: {row.machine}: {row.command}: {row.outcome} ({row.seconds} s)", file=sys.stderr, flush=True
            )
            rows.append(row)
        sizes = {"checkout and .venv": CHECKOUT, "caches": f"{HOME}/.cache", "all": ""}
        taken = ", ".join(f"{name} {machine.size(path) / 1e9:.1f} GB" for name, path in sizes.items())
        print(f"machines: {MACHINES[suite]} has on its disk: {taken}", file=sys.stderr, flush=True)
    return rows


def table(rows: list[Row]) -> str:
    """A line for each command."""
    lines = [f"{'machine':<10} {'Python':<8} {'command':<12} {'seconds':>7}  outcome"]
    for row in rows:
        failed = "" if row.passed else "FAILED, "
        lines.append(f"{row.machine:<10} {row.python:<8} {row.command:<12} {row.seconds:>7}  {failed}{row.outcome}")
    return "\n".join(lines)


def main() -> None:
    """Try the machines that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="make test-machines ARGS=", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("machines", nargs="*", metavar="RELEASE", help=f"of {', '.join(MACHINES)}; default: all")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    chosen = parser.parse_args()
    if unknown := set(chosen.machines) - set(MACHINES):
        parser.error(f"there is no machine {', '.join(sorted(unknown))}; there are {', '.join(MACHINES)}")
    superuser.stop_where_asked("a machine in namespaces of its own", "test-machines")
    commands = readme_commands((steps.ROOT / "README.md").read_text())
    folder = Path(tempfile.mkdtemp(prefix="osrdyne-machines-"))
    started = time.monotonic()
    rows = []
    for suite in chosen.machines or MACHINES:
        print(f"machines: {MACHINES[suite]}: {', then '.join(commands)}", file=sys.stderr, flush=True)
        rows += try_machine(suite, commands, folder)
    print(json.dumps([asdict(row) for row in rows]) if chosen.json else table(rows))
    seconds = time.monotonic() - started
    print(f"machines: output is in {folder}; all of it took {seconds:.0f} s", file=sys.stderr, flush=True)
    sys.exit(not all(row.passed for row in rows))


if __name__ == "__main__":
    with guarded("machines"):
        main()
