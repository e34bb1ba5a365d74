"""A machine without proton: what does not need it works, and what does says what to install."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = "import sys; sys.modules['proton'] = None; "


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, check=False, timeout=60
    )


def test_addresses_and_credit_work() -> None:
    done = python("from osrdyne_bus import Routable, Target; print(Routable().shared(Target('maps')))")

    assert (done.returncode, done.stdout) == (0, "osrdyne/bus/rpc/anycast/osrdyne/maps\n"), done.stderr


def test_a_connection_says_which_package_is_missing_and_what_it_needs() -> None:
    done = python("import osrdyne_bus.engine")

    assert done.returncode == 1
    said = "osrdyne_bus.engine needs proton: install osrdyne-bus[proton], which compiles C (docs/decisions/0030)"
    assert done.stderr.splitlines()[-1] == f"ImportError: {said}"


def test_the_command_says_the_same_and_still_has_its_help() -> None:
    run = "from osrdyne.cli import main; sys.argv[1:] = {words!r}; main()"

    done = python(run.format(words=["bus", "ping", "--broker", "amqp://127.0.0.1"]))
    shown = python(run.format(words=["bus", "--help"]))

    assert done.returncode == 2
    assert done.stderr.startswith("osrdyne: osrdyne_bus.engine needs proton: install osrdyne-bus[proton]")
    assert shown.returncode == 0, shown.stderr
    assert "watch" in shown.stdout
