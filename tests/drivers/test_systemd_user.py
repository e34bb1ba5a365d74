"""A plain user's daemon: the life of its groups under the user's own manager, and with leave under the machine's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import ROOT
from testbed.systemd import UID, USER
from tests.drivers import systemd_as_user
from tests.drivers.subjects.base import PASSWORD
from tests.drivers.subjects.systemd import STUB, SystemdSubject

pytestmark = [pytest.mark.xdist_group("systemd"), pytest.mark.full]

RULES = "/etc/polkit-1/rules.d/50-osrdyne.rules"


def install(units: SystemdSubject, directory: Path) -> None:
    """Installs the unit in one of the two directories of units; its environment files are the user's."""
    service = ("Type=exec", f"EnvironmentFile={home(units)}/%i.env", f"ExecStart={STUB}", "Restart=on-failure")
    lines = ("[Unit]", "StartLimitBurst=1000", "[Service]", *service, "RestartSec=0.2", "TimeoutStopSec=5", "")
    (directory / units.unit).write_text("\n".join(lines))


def home(units: SystemdSubject) -> str:
    return f"/run/user/{UID}/{units.pool}"


def seen(units: SystemdSubject, what: str, manager: str) -> dict[str, Any]:
    """Returns what a driver on the machine saw, which was the user's."""
    command = ("python3", "-B", "-m", systemd_as_user.__name__, what, manager, units.unit, home(units))
    done = units.machine.as_user(*command)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def leave(units: SystemdSubject) -> Iterator[None]:
    """The rule of the page, for this test's user and units."""
    rule = re.search(r"```js\n(.*?)```", Path(ROOT, "docs/howto/driver-systemd.md").read_text(), re.DOTALL)
    assert rule
    text = rule[1].replace("osrdyne-core@", units.unit.partition(".")[0]).replace('"osrdyne"', f'"{USER}"')
    units.machine.run("sh", "-c", f"cat > {RULES} <<'END'\n{text}END")
    units.machine.run("systemctl", "restart", "polkit")
    yield
    units.machine.run("rm", RULES)
    units.machine.run("systemctl", "restart", "polkit")


def test_a_users_manager_runs_groups_of_any_key_for_one_daemon_after_another(units: SystemdSubject) -> None:
    install(units, units.machine.user_units)
    found = seen(units, "life", "user")
    assert "ended with status 3; systemd starts it again; see journalctl --user -u" in found["error"]
    assert PASSWORD not in found["error"]
    assert found["template"]
    assert found["left"] == []
    (units.machine.user_units / units.unit).unlink()


def test_a_user_that_systemd_lets_start_nothing_gets_an_error_that_says_so(units: SystemdSubject) -> None:
    install(units, units.machine.units)
    found = seen(units, "refusal", "system")
    assert "systemd refused StartUnit" in found["refused"]
    assert "let the daemon's user manage these units by a polkit rule" in found["refused"]
    assert found["left"] == []


def test_with_the_rule_of_the_page_a_plain_users_daemon_runs_the_machines_units(
    units: SystemdSubject, leave: None
) -> None:
    install(units, units.machine.units)
    found = seen(units, "life", "system")
    assert "ended with status 3; systemd starts it again; see journalctl -u" in found["error"]
    assert found["left"] == []


def test_the_rule_of_the_page_is_for_those_units_alone(units: SystemdSubject, leave: None) -> None:
    assert units.machine.as_user("systemctl", "start", "systemd-tmpfiles-clean.service").returncode != 0
