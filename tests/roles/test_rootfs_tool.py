"""The tool that keeps a broker in a root file system of its own, as roles/rabbitmq uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import steps
from testbed.broker import Broker, run_tool


def configured(broker: Broker, **other: int) -> bool:
    """Configure the broker as it is, but for `other`; whether the tool says that the broker has to be restarted."""
    told = json.loads((broker.directory / "instance.json").read_text()) | other
    words = [word for name, value in told.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return bool(json.loads(run_tool("configure", "--dir", str(broker.directory), *words))["changed"])


def test_a_configuration_asks_for_a_restart_until_the_broker_has_loaded_it(one_version: str) -> None:
    # Given a broker, and whoever configured it anew was cut short before the restart
    with Broker(one_version) as broker:
        assert not configured(broker)
        assert configured(broker, memory=700)
        # Then the next run finds nothing to write and still asks for it
        assert configured(broker, memory=700)
        # And once it was restarted, no longer
        broker.restart()
        assert not configured(broker, memory=700)


def test_what_a_build_that_was_cut_short_left_is_removed_with_what_is_mounted_in_it(tmp_path: Path) -> None:
    (tmp_path / "root.part/proc").mkdir(parents=True)
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run([*superuser, "mount", "-t", "proc", "proc", tmp_path / "root.part/proc"], check=True)
    tool = Path(steps.ROOT, "roles/rabbitmq/files")
    program = (
        "import sys; from pathlib import Path; from rabbitmq_rootfs import rootfs; rootfs.discard(Path(sys.argv[1]))"
    )

    for _ in range(2):
        subprocess.run([*superuser, sys.executable, "-c", program, tmp_path / "root.part"], check=True, cwd=tool)

    assert not (tmp_path / "root.part").exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
