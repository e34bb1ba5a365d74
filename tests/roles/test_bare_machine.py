"""The machines of `make test-machines`: bare, and gone at the end with all that ran in them."""

from __future__ import annotations

import psutil
import pytest

from testbed.bare_machine import CHECKOUT, BareMachine


@pytest.mark.full
@pytest.mark.xdist_group("machines")
def test_a_bare_machine_has_the_checkout_and_ends_with_all_that_runs_in_it() -> None:
    with BareMachine("trixie") as machine:
        root = machine.root
        outcomes = list(
            machine.run(
                "pwd && ls tools/setup.py && ! ls .venv && ! python3 -c 'import ensurepip'",
                "exec 2>&1; which systemctl rabbitmqctl sudo pip || echo none",
                "sleep 54321 & exit 3",
                "cat /proc/*/cmdline | tr '\\0' ' '",
                limit=60.0,
            )
        )
        assert root.exists()

    assert outcomes[0].code == 0
    assert outcomes[0].output.splitlines()[0] == CHECKOUT
    assert outcomes[1].output == "none\n"
    assert outcomes[2].code == 3
    # What a command leaves running, the next one finds.
    assert "sleep 54321" in outcomes[3].output
    assert not root.exists()
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "54321"]
    ]


@pytest.mark.full
@pytest.mark.xdist_group("machines")
def test_a_command_that_takes_too_long_ends_the_machine() -> None:
    with BareMachine("trixie") as machine:
        outcomes = list(machine.run("sleep 54322", "true", limit=1.0))

    assert [outcome.code for outcome in outcomes] == [None]
