"""`make pipeline-demo`: the pipeline on real data. The year's flights become calls, the daemon's own rules make events
of them in virtual time, and the events become tables, a recommendation and a report.

Each step is a command that is shown before it runs, so that it can be run again by hand. Ends with the report's place
and one line for scripts; before and after are those of held-out days. Exits with 1 when a step fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osrdyne_runtime.console.streams import guarded

#: Where files of the demo are unless a person names another place.
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "osrdyne", "pipeline-demo")
POOL = "airports"


class StepFailed(Exception):
    """A command ended with an error, which it has printed itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    options = _parser().parse_args(arguments)
    begun = time.monotonic()
    shutil.rmtree(options.dir, ignore_errors=True)
    options.dir.mkdir(parents=True)
    try:
        line = _run(options)
    except StepFailed as error:
        print(f"pipeline-demo: {error}", file=sys.stderr)
        return 1
    print(f"done in {time.monotonic() - begun:.0f} s; the report: {options.dir / 'lake' / POOL / 'report.html'}")
    print(line)
    return 0


def _run(options: argparse.Namespace) -> str:
    folder: Path = options.dir
    calls, events, lake = folder / "calls.csv", folder / "events.jsonl", folder / "lake"
    here = ["--pool", POOL, "--lake", str(lake), "--memory", options.memory]
    _step(sys.executable, "-m", "examples.airports.calls", "--key", options.key, "--days", options.days, "--out", calls)
    osrdyne = _tool("osrdyne")
    _step(osrdyne, "replay", "--calls", calls, "--out", events)
    ingested = _step(osrdyne, "pipeline", "ingest", events, *here, "--json")
    made = _step(osrdyne, "pipeline", "tables", *here, "--json")
    advice = _step(osrdyne, "pipeline", "recommend", *here, "--json")
    _step(osrdyne, "pipeline", "report", *here, "--json")
    return last_line(ingested, made, advice)


def last_line(ingested: dict[str, Any], made: dict[str, Any], advice: dict[str, Any]) -> str:
    """Return the line for scripts. Raises `StepFailed` where the history was too short to hold days out."""
    evidence = advice["evidence"]
    if not evidence:
        raise StepFailed(f"there is no evidence to show: {' '.join(advice['reasons'])}")
    results = {result["name"]: result for result in evidence["results"]}
    # Where nothing is recommended, nothing changes.
    before, after = results["today"], results["ours" if advice["recommended"] else "today"]
    numbers = {
        "events": ingested["events"],
        "requests": made["rows"]["silver/requests"],
        "cold_starts_before": before["cold"],
        "cold_starts_after": after["cold"],
        "worker_hours_before": round(before["worker_hours"]),
        "worker_hours_after": round(after["worker_hours"]),
    }
    return "pipeline: " + " ".join(f"{name}={number}" for name, number in numbers.items())


def _step(*words: object) -> dict[str, Any]:
    """Show a command and run it; return its JSON document, if that was asked for. Raises `StepFailed`."""
    command = [str(word) for word in words]
    shown = [Path(command[0]).name, *command[1:]]
    print(f"$ {shlex.join(shown)}", flush=True)
    wanted = "--json" in command
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE if wanted else None, text=True)
    if done.returncode:
        raise StepFailed(f"{shlex.join(shown[:3])} ended with exit code {done.returncode}")
    return dict(json.loads(done.stdout)) if wanted else {}


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make pipeline-demo", description=(__doc__ or "").partition("\n\n")[0])
    option = parser.add_argument
    option(
        "--key", choices=("dest", "tailnum"), default="dest", help="what a call's key is: 105, or 4,043 (%(default)s)"
    )
    option("--days", type=int, default=366, help="only the first days of the year")
    option("--dir", type=Path, default=FOLDER, help="folder for calls, events and lake; emptied first (%(default)s)")
    option("--memory", default="2g", help="memory of the engine (%(default)s)")
    return parser


if __name__ == "__main__":
    with guarded("pipeline-demo"):
        sys.exit(main())
