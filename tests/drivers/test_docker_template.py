"""What containers are started from: the template as it stands, and what the driver fills in."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from osrdyne.errors import DriverError
from testbed.own_dockerd import OwnDockerd
from testbed.waiting import until_async
from tests.drivers.subjects.base import PASSWORD, listed
from tests.drivers.subjects.docker import DockerSubject, Engine

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.full]


async def started(dockerd: DockerSubject, template: dict[str, Any], key: str = "a") -> dict[str, Any]:
    """Returns what the engine knows of a container that the driver started."""
    await dockerd.driver_of(template).start(key)
    [container] = await dockerd.containers(key)
    return container


async def test_the_engine_gets_what_the_template_says(dockerd: DockerSubject) -> None:
    container = await started(
        dockerd,
        {
            "Env": ["TZ=UTC"],
            "Labels": {"team": "blue"},
            "StopSignal": "SIGINT",
            "StopTimeout": 7,
            "Hostname": "worker",
            "HostConfig": {
                "NetworkMode": "bridge",
                "Memory": 64 << 20,
                "NanoCpus": 500_000_000,
                "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
                "Tmpfs": {"/scratch": "size=1m"},
                "Mounts": [{"Type": "bind", "Source": str(dockerd.directory), "Target": "/data", "ReadOnly": True}],
            },
        },
    )
    config, host = container["Config"], container["HostConfig"]
    assert "TZ=UTC" in config["Env"]
    assert config["Labels"]["team"] == "blue"
    assert (config["StopSignal"], config["StopTimeout"], config["Hostname"]) == ("SIGINT", 7, "worker")
    assert (host["NetworkMode"], host["Memory"], host["NanoCpus"]) == ("bridge", 64 << 20, 500_000_000)
    assert host["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
    assert host["Tmpfs"] == {"/scratch": "size=1m"}
    assert {mount["Destination"] for mount in container["Mounts"]} == {"/data", "/run/osrdyne"}


async def test_a_flood_of_output_keeps_to_the_limit_of_the_log(dockerd: DockerSubject) -> None:
    """The engine of the tests has `json-file`, which has no limit by itself."""
    container = await started(dockerd, {"Entrypoint": ["python3", "-c", "while True: print('line')"]})
    log = Path((await dockerd.run("inspect", "--format", "{{.LogPath}}", container["Id"])).strip())
    older = log.with_name(f"{log.name}.1")
    sizes: list[int] = []
    times: set[int] = set()

    def often_full() -> bool:
        with contextlib.suppress(FileNotFoundError):  # it is just renamed
            sizes.extend(path.stat().st_size for path in (log, older))
            times.add(older.stat().st_mtime_ns)
        return len(times) > 5

    await until_async(often_full)
    assert max(sizes) < 11_000_000


async def test_a_limit_of_logs_that_the_engine_was_started_with_is_left_alone(tmp_path: Path) -> None:
    with OwnDockerd("--log-opt=max-size=1m", "--log-opt=labels=team") as own:
        subject = DockerSubject(Engine(own.docker, own.docker.worker()), tmp_path)
        try:
            container = await started(subject, {})
        finally:
            await subject.clean_up()
    assert container["HostConfig"]["LogConfig"] == {"Type": "json-file", "Config": {"labels": "team", "max-size": "1m"}}


async def test_labels_name_the_owner_of_a_container_and_its_name_is_readable(dockerd: DockerSubject) -> None:
    driver = dockerd.driver_of({})
    await driver.start("Infra=42")
    [container] = await dockerd.containers("Infra=42")
    labels = {name: text for name, text in container["Config"]["Labels"].items() if name.startswith("osrdyne.")}
    assert labels == {
        "osrdyne.pool": dockerd.pool,
        "osrdyne.instance": "one",
        "osrdyne.key": "Infra=42",
        "osrdyne.template": driver.template,
    }
    assert container["Name"].startswith(f"/{dockerd.pool}-infra-42-")


async def test_a_worker_reads_its_address_from_a_file_that_follows_the_daemons(dockerd: DockerSubject) -> None:
    container = await started(dockerd, {})
    assert not [
        variable
        for variable in container["Config"]["Env"]
        if PASSWORD in variable or variable.startswith("WORKER_AMQP_URI=")
    ]
    assert "WORKER_AMQP_URI_FILE=/run/osrdyne/worker-uri" in container["Config"]["Env"]
    # A new password, as a whole: another file is renamed over the old one
    new = dockerd.directory / "new"
    new.write_text("amqp://worker:new@broker/pool")
    new.replace(dockerd.uri_file)
    assert await dockerd.run("exec", container["Id"], "cat", "/run/osrdyne/worker-uri") == new_address(dockerd)
    with pytest.raises(RuntimeError, match="Read-only file system"):
        await dockerd.run("exec", container["Id"], "touch", "/run/osrdyne/file")


def new_address(dockerd: DockerSubject) -> str:
    return dockerd.uri_file.read_text()


async def test_a_missing_image_is_reported_with_what_to_do_and_harms_no_other_key(dockerd: DockerSubject) -> None:
    good = dockerd.driver_of({})
    await good.start("good")
    driver = dockerd.driver_of({"Image": "missing/image:none"})
    with pytest.raises(DriverError, match=r"key 'bad'.*No such image: missing/image:none; have the engine pull"):
        await driver.start("bad")
    assert (await listed(driver)).keys() == {"good"}
    assert await dockerd.containers("bad") == []


@pytest.mark.parametrize(
    "template, reason",
    [
        ({"Entrypoint": ["/no/such/program"], "HostConfig": {"Init": False}}, "no such file or directory"),
        ({"HostConfig": {"NetworkMode": "nowhere"}}, "network nowhere not found"),
        (
            {"HostConfig": {"Mounts": [{"Type": "bind", "Source": "/no/such", "Target": "/a"}]}},
            "does not exist: /no/such",
        ),
        ({"HostConfig": {"Memory": 1}}, "[mM]emory limit"),
    ],
    ids=["program", "network", "mount", "memory"],
)
async def test_what_the_engine_refuses_is_reported_and_leaves_nothing(
    dockerd: DockerSubject, template: dict[str, Any], reason: str
) -> None:
    driver = dockerd.driver_of(template)
    with pytest.raises(DriverError, match=rf"key 'a'.*{reason}.*is .*template\.json right"):
        await driver.start("a")
    assert await driver.list() == []
    assert await dockerd.containers("a") == []
