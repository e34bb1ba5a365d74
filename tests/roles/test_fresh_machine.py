"""What a person sees on a fresh Debian 12: `make demo`, with a sudo that asks for a password and without systemd."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from testbed.docker import engine
from tests.roles.local_setup import changed
from tests.roles.machine import Machine, machine


@pytest.fixture(scope="module")
def debian() -> Iterator[Machine]:
    with engine() as docker, machine(docker, "bookworm") as found:
        yield found


@pytest.mark.full
@pytest.mark.xdist_group("machines")
@pytest.mark.timeout(900)
def test_make_demo_on_a_fresh_machine_says_what_it_needs_and_then_answers_every_request(debian: Machine) -> None:
    # Given no terminal at which a person could type a password
    refused = debian.run("make", "demo")
    # Then it does not wait for one, and says what to do
    assert refused.returncode
    assert "sudo wants a password and there is no terminal" in refused.stdout, refused.stdout
    # When it runs at a terminal
    code, shown = debian.at_terminal("make", "demo", "DEMO=--hours 5-8 --timeout 240", within=600)
    # Then the machine has what it lacked, its broker in a root file system of its own, and every answer was right
    assert code == 0, shown[-4000:]
    assert "broker: rootfs" in shown
    answered = re.search(r"^demo: requests=(\d+) answered=(\d+) wrong=0 lost=0$", shown, re.MULTILINE)
    assert answered, shown[-2000:]
    assert answered[1] == answered[2] != "0"
    # And another run has nothing left to do
    code, shown = debian.at_terminal("make", "up", within=200)
    assert (code, changed(shown)) == (0, 0), shown[-4000:]
    # And the tests, which start much in many places, ask for nothing and say how they are run
    refused = debian.run("make", "test")
    assert refused.returncode
    assert "run it as root: sudo make test" in refused.stdout, refused.stdout
    # And `make down` ends all that was started
    code, shown = debian.at_terminal("make", "down", within=200)
    assert code == 0, shown[-4000:]
    assert not re.search("beam|osrdyne|examples", debian.processes())
