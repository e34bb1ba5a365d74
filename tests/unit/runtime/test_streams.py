"""Programs that serve where nothing can be printed: they go on, and end with the status that they have."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SERVES = """
import asyncio, sys
from osrdyne_runtime import program

async def main():
    for _ in range(3):
        await asyncio.to_thread(print, "Zürich " * 10_000, flush=True)
    print("served", file=sys.stderr, flush=True)

program.run(main(), "the program")
"""
CLOSES = """
import sys
from osrdyne_runtime import program

async def main():
    sys.stdout.close()
    raise SystemExit(3)

program.run(main(), "the program")
"""
HANGS = """
import sys
from osrdyne_runtime import program
print("x" * 1000)
program.end_at_once(70)
"""
LOGS = """
import logging
from osrdyne_runtime.console import log_format
log_format.configure(as_json=True)
logging.getLogger("a").info("key", extra={"key": "Zürich \\U0001f600"})
"""


READS_THE_ENCODING = """
import codecs, io, json, sys
import click, rich
from osrdyne_runtime.console import streams

with streams.unfailing():
    name = sys.stdout.encoding
    print("Zürich".encode(codecs.lookup(name).name), b"Z".decode(name))
    text = io.TextIOWrapper(io.BytesIO(), encoding=name)
    text.write("Zürich")
    sys.stdout.flush()
    codecs.getwriter(name)(sys.stdout.buffer).write("Zürich\\n")
    print(codecs.getreader(name)(io.BytesIO(b"Z")).read())
    click.echo("Zürich")
    click.secho("Zürich", fg="red")
    rich.print("Zürich")
    json.dump("Zürich", sys.stdout, ensure_ascii=False)
"""


def run(code: str, *redirection: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program by a shell, which may close or redirect its standard output."""
    command = f'exec "$0" -c "$1" {" ".join(redirection)}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, code],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        # Unbuffered, a print would fail by itself.
        env=dict(os.environ) | {"PYTHONUNBUFFERED": ""} | variables,
    )


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-", "| true"])
def test_what_a_program_prints_while_it_serves_cannot_end_it(redirection: str) -> None:
    done = run(SERVES, redirection)

    assert (done.returncode, done.stderr) == (0, "served\n")


def test_characters_that_cannot_be_shown_fail_no_request() -> None:
    done = run(SERVES, PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "served\n")
    assert r"Z\xfcrich" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "us-ascii:strict", "latin-1"])
def test_a_program_may_use_the_encoding_that_a_stream_names(encoding: str) -> None:
    done = run(READS_THE_ENCODING, PYTHONIOENCODING=encoding)

    assert (done.returncode, done.stderr) == (0, "")
    shown = r"Z\xfcrich" if "ascii" in encoding else "Z\udcfcrich"
    assert done.stdout.splitlines()[1:] == [shown, "Z", shown, shown, shown, f'"{shown}"']


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-", "2> /dev/full", "2>&-"])
def test_a_program_that_hangs_is_ended_also_where_nothing_can_be_written(redirection: str) -> None:
    assert run(HANGS, redirection).returncode == 70


def test_a_log_of_json_is_json_also_where_its_file_is_ascii() -> None:
    done = run(LOGS, PYTHONIOENCODING="ascii")

    assert json.loads(done.stderr)["key"] == "Zürich \U0001f600"


def test_a_program_that_closes_its_output_keeps_its_status() -> None:
    done = run(CLOSES)

    assert (done.returncode, done.stderr) == (3, "")
