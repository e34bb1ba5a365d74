"""A machine with systemd comes from the release before to this one by its playbook, and back, while it is called."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import steps
from testbed.distributions import Environment
from testbed.docker import Docker, container_name, engine
from testbed.waiting import until
from tests.release.two_versions import KEYS, Caller, Version, install, lines, tree_before
from tests.roles import local_setup

#: No reply comes later than that, in seconds, whatever is exchanged.
LATEST = 10.0
RIGHTS = ("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--security-opt=seccomp=unconfined", "--cgroupns=host")
MOUNTS = ("--tmpfs=/run", "--tmpfs=/run/lock", "--tmpfs=/tmp:exec", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw")
#: The collections of the tests' Ansible: how it speaks to a container.
COLLECTIONS = {"ANSIBLE_COLLECTIONS_PATH": f"{steps.ROOT}/.venv/collections:{sysconfig.get_path('purelib')}"}
VENV = "/opt/osrdyne/venv"
#: Says which process answered, and of which release: the one before has no module of that name.
WORKER = """
import os
from importlib.util import find_spec
from osrdyne_worker import run
release = "after" if find_spec("osrdyne_pool.differences") else "before"
run(lambda request: f"{os.getpid()} {release}".encode())
"""
CLIENT = "Client(pathlib.Path('/etc/osrdyne/core/client.uri').read_text().strip(), 'core')"
IMPORTS = "import pathlib\nfrom osrdyne_client import Client"
#: Calls the same keys all the time, and others that have no worker yet.
KNOWN, NEW = Caller(IMPORTS, CLIENT), Caller(IMPORTS, CLIENT, "f'{key}-{int(time.time() / 10)}'")


@dataclass
class Machine:
    """A container that systemd runs, and the playbooks of two releases for it."""

    docker: Docker
    name: str
    folder: Path

    def play(self, control: Version) -> None:
        """Run the playbook of a release as its page says."""
        command = [control.environment.program("ansible-playbook"), "dev.yml"]
        command += ["--inventory", str(self.folder / "machines.json")]
        command += ["--extra-vars", f"@{self.folder / 'variables.json'}"]
        environment = {**self.docker.environment, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", **COLLECTIONS}
        done = local_setup.run(command, env=environment, cwd=control.tree, timeout=900)
        (self.folder / f"play-{len(list(self.folder.glob('play-*')))}.log").write_text(done.stdout)
        assert done.returncode == 0, done.stdout[-6000:]

    def __call__(self, *command: str) -> str:
        return self.docker("exec", self.name, *command)

    def python(self, path: str) -> list[str]:
        """The command of a Python of the machine, whose standard input is ours."""
        return ["docker", "exec", "--interactive", self.name, path]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with engine() as docker:
        name = container_name("upgrade")
        docker("run", "--detach", f"--name={name}", *RIGHTS, *MOUNTS, docker.machine("trixie"), "/lib/systemd/systemd")
        try:
            made = Machine(docker, name, tmp_path)
            until(lambda: "running" in made("sh", "-c", "systemctl is-active dbus.service && echo running || true"))
            made("sh", "-c", f"mkdir /opt/osrdyne && cat > /opt/osrdyne/worker.py <<'EOF'\n{WORKER}\nEOF")
            python = {"ansible_python_interpreter": "/usr/bin/python3"}
            host = {"ansible_connection": "community.docker.docker", **python}
            (tmp_path / "machines.json").write_text(json.dumps({"all": {"hosts": {name: host}}}))
            variables = {
                "osrdyne_hosts": "all",
                "osrdyne_broker": "",
                "osrdyne_account": "osrdyne",
                "osrdyne_python": "",
                "osrdyne_worker_directory": "/opt/osrdyne",
                "osrdyne_worker_command": [f"{VENV}/bin/python", "/opt/osrdyne/worker.py"],
                "osrdyne_pool": {"name": "core", "unbind_delay": 600, "stop_delay": 60, "jobs": {}},
                "osrdyne_jobs_database": "",
            }
            (tmp_path / "variables.json").write_text(json.dumps(variables))
            yield made
        finally:
            docker("rm", "--force", "--volumes", name)


@pytest.fixture
def before(tmp_path: Path) -> Version:
    """The release before, and an Ansible that has its filters' packages, and what its role makes wheels with."""
    (tmp_path / "tree").mkdir()
    ours = ("osrdyne", "osrdyne-jobs[postgresql]", "osrdyne-relay[driver,node,s3]")
    tree = tree_before(tmp_path / "tree")
    return install(tree, tmp_path / "control", *ours, "ansible-core", "docker", "flit_core", "packaging", "pip")


@pytest.fixture
def after() -> Version:
    """What is there now, in the environment of the tests."""
    return Version(Environment(Path(sys.prefix)), steps.ROOT)


@pytest.mark.full
@pytest.mark.xdist_group("machines")
@pytest.mark.timeout(1800)
def test_a_machine_is_upgraded_and_downgraded_by_its_playbook_and_every_call_is_answered(
    machine: Machine, before: Version, after: Version
) -> None:
    machine.play(before)
    machine("cp", "--archive", VENV, "/opt/client")
    broker = machine("systemctl", "show", "--property=MainPID", "rabbitmq-server")
    environment = machine.docker.environment
    with ExitStack() as callers:

        def called(caller: Caller, name: str) -> Path:
            callers.enter_context(
                caller.called_by(machine.python("/opt/client/bin/python"), name, machine.folder, environment)
            )
            return machine.folder / f"{name}.jsonl"

        def new_keys_are_of(release: str) -> bool:
            return all(answer.endswith(release) for answer in {key: answer for key, answer, _ in lines(new)}.values())

        known, new = called(KNOWN, "known"), called(NEW, "new")
        for version, release in ((after, "after"), (before, "before")):
            machine.play(version)
            until(partial(new_keys_are_of, release), what="answers of workers of that release")

    assert broker == machine("systemctl", "show", "--property=MainPID", "rabbitmq-server")
    assert max(seconds for file in (known, new) for *_, seconds in lines(file)) < LATEST
    assert {answer.split()[-1] for _, answer, _ in lines(new)} == {"before", "after"}
    # The first worker of each key that was called all the time answered to the end
    workers = {(key, answer) for key, answer, _ in lines(known)}
    assert len(workers) == KEYS
    assert {answer.split()[-1] for _, answer in workers} == {"before"}
