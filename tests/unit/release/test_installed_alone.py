"""Each package works where it is installed alone, and brings its own commands and no others.

Its wheel and those of our packages that it needs are built from here, and what others made is linked: all that the
wheels ask for, and no more. tests/release does the same from an index, with what the registries give.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import setup
from testbed.distributions import Environment, Wheels, size
from testbed.waiting import PATIENCE_SECONDS, until
from tests.unit.release.alone import FIRST

#: What is installed -> the group of commands that it brings.
COMMANDS = {
    "osrdyne-bus[command]": "bus",
    "osrdyne-jobs": "jobs",
    "osrdyne-relay[node]": "relay",
    "osrdyne-pipeline": "pipeline",
}
#: What `pip install osrdyne` may bring.
FEWER_PACKAGES_THAN, FEWER_BYTES_THAN = 25, 40_000_000
#: pip compiles what it installs, which takes about as much again as the source of a module.
COMPILED = 1.1


@pytest.mark.parametrize("package", FIRST)
def test_a_package_that_is_installed_alone_does_what_its_page_says(
    package: str, installed: Callable[[str], Environment]
) -> None:
    FIRST[package].run(installed(package))


def test_each_package_is_installed_alone() -> None:
    assert len({Requirement(requirement).name for requirement in FIRST}) == len(setup.packages())


@pytest.mark.parametrize("package", COMMANDS)
def test_a_package_that_is_installed_alone_has_the_program_with_its_commands(
    package: str, wheels: Wheels, installed: Callable[[str], Environment]
) -> None:
    made = installed(package)

    assert "osrdyne" not in wheels.needed(package)
    assert listed(made) == [COMMANDS[package]]
    assert made.run("osrdyne", "--version").stdout.startswith("osrdyne ")
    assert made.run("osrdyne", COMMANDS[package], "--help").returncode == 0


def listed(made: Environment) -> list[str]:
    return re.findall(r"^  ([a-z]+)  ", made.run("osrdyne", "--help").stdout.partition("Commands:\n")[2], re.MULTILINE)


def test_osrdyne_brings_client_worker_daemon_and_command_and_little_else(
    wheels: Wheels, installed: Callable[[str], Environment]
) -> None:
    names = wheels.needed("osrdyne")
    made = installed("osrdyne")

    assert {"osrdyne-client", "osrdyne-worker", "osrdyne-command"} < names
    assert listed(made) == ["call", "daemon", "dev", "lint", "new", "poison", "pool", "replay", "status"]
    assert made.run("osrdyne", "new", "core").returncode == 0
    assert (made.place / "core/worker.py").exists()
    assert len(names) < FEWER_PACKAGES_THAN, sorted(names)
    ours = sum(wheels.files[name].stat().st_size * 4 for name in names & wheels.files.keys())
    sizes = {name: size(name) for name in names - wheels.files.keys()}
    assert (ours + sum(sizes.values())) * COMPILED < FEWER_BYTES_THAN, sizes


def test_the_plugin_of_the_pulumi_package_serves_from_its_wheel_and_ends_with_its_engine(
    installed: Callable[[str], Environment],
) -> None:
    made = installed("osrdyne-infra")
    # A shell stands for the engine: it starts the plugin, which says its port on a line of its own.
    script = f"{made.program('pulumi-resource-osrdyne')} 127.0.0.1:1 & echo $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True, env={}) as engine:
        assert engine.stdout is not None
        plugin, port = int(engine.stdout.readline()), int(engine.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS):
            engine.kill()
    until(lambda: not Path(f"/proc/{plugin}").exists(), what="the plugin ends")


SETTINGS = """
pool.name = "core"
broker = {{amqp_uri = "amqp://a:b@127.0.0.1:1/x", management_uri = "http://a:b@127.0.0.1:1"}}
{more}
[driver]
{driver}
"""
DRIVERS = {
    "docker": 'kind = "docker"\ntemplate_file = "t.json"\nworker_amqp_uri_file = "uri"',
    "systemd": 'kind = "systemd"\nunit = "a@.service"\nenvironment_directory = "e"\nworker_amqp_uri = "amqp://a:b@c/d"',
    "kubernetes": 'kind = "kubernetes"\ntemplate_directory = "."\nworker_secret = "s"',
}


@pytest.fixture
def alone(installed: Callable[[str], Environment]) -> Environment:
    """An environment with `osrdyne`, and the files that settings name."""
    made = installed("osrdyne")
    (made.place / "uri").write_text("amqp://a:b@c/d")
    (made.place / "t.json").write_text('{"Image": "a"}')
    return made


def checked(made: Environment, driver: str, more: str = "") -> tuple[int, str]:
    (made.place / "settings.toml").write_text(SETTINGS.format(driver=driver, more=more))
    done = made.run("osrdyne", "daemon", "--settings", "settings.toml", "--check")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("driver", "library"), [("docker", "docker"), ("systemd", "dbus_fast"), ("kubernetes", "yaml")]
)
def test_a_driver_without_its_library_names_the_extra(alone: Environment, driver: str, library: str) -> None:
    assert checked(alone, 'kind = "noop"') == (0, "settings.toml: settings are right\n")
    expected = f"osrdyne: {library} is not installed; install osrdyne[{driver}]\n"
    assert checked(alone, DRIVERS[driver]) == (2, expected)


def test_a_table_about_the_status_without_what_serves_it_names_the_extra(alone: Environment) -> None:
    assert checked(alone, 'kind = "noop"') == (0, "settings.toml: settings are right\n")
    expected = "osrdyne: aiohttp is not installed; install osrdyne[status]\n"
    assert checked(alone, 'kind = "noop"', "status = {port = 1}") == (2, expected)


def test_a_daemon_without_what_serves_the_status_says_so_and_goes_on(alone: Environment) -> None:
    (alone.place / "settings.toml").write_text(SETTINGS.format(driver='kind = "noop"', more=""))
    log = alone.place / "daemon.log"
    with log.open("wb") as file:
        command = [alone.program("osrdyne"), "daemon", "--settings", "settings.toml"]
        process = subprocess.Popen(command, cwd=alone.place, env={}, stdout=file, stderr=file)
    try:
        # Nothing is a broker there, which it waits for.
        until(lambda: "the broker cannot be used" in log.read_text(), what="the daemon looks for its broker")
    finally:
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    said = 'warning the status is not served reason="aiohttp is not installed; install osrdyne[status]"'
    assert said in log.read_text()


@pytest.mark.parametrize(
    ("package", "extra", "library", "code"),
    [
        ("osrdyne-jobs", "postgresql", "psycopg", "engines.engine_for('postgresql://a:b@c/d')"),
        ("osrdyne-jobs", "sqlite", "aiosqlite", "engines.async_engine_for('sqlite:////x')"),
        ("osrdyne-jobs", "http", "aiohttp", "import osrdyne_jobs.http"),
        ("osrdyne-relay", "client", "aiohttp", "import osrdyne_relay.client"),
        ("osrdyne-relay", "node", "aiohttp", "import osrdyne_relay.http"),
        ("osrdyne-relay", "worker", "aiohttp", "import osrdyne_relay.worker"),
    ],
)
def test_a_database_or_a_transport_without_its_library_names_the_extra(
    package: str, extra: str, library: str, code: str, installed: Callable[[str], Environment]
) -> None:
    before = "from osrdyne_jobs.database import engines; " if code.startswith("engines") else ""
    done = installed(package).run("python", "-c", before + code)

    said = f"osrdyne_runtime.console.imports.NotInstalled: {library} is not installed; install {package}[{extra}]"
    assert done.stderr.splitlines()[-1] == said
