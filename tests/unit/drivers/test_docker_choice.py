"""The docker driver as the settings choose it: what is wrong is said before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne.drivers.base import Driver
from osrdyne.drivers.docker.driver import DockerDriver
from osrdyne.drivers.docker.template import ContainerTemplate
from osrdyne.settings import daemon as settings
from osrdyne.settings.daemon import DaemonSettings
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError

SETTINGS = """
[pool]
name = "core"
[broker]
amqp_uri = "amqp://daemon:x@localhost/pool"
management_uri = "http://daemon:x@localhost:15672"
[driver]
kind = "docker"
template_file = "{directory}/container.toml"
worker_amqp_uri_file = "{directory}/worker/uri"
host = "unix:///nowhere/docker.sock"
"""


def opened(found: DaemonSettings) -> Driver:
    return found.driver.open(found.pool)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What the settings name, all of it right."""
    (tmp_path / "settings.toml").write_text(SETTINGS.format(directory=tmp_path))
    (tmp_path / "container.toml").write_text('Image = "core"\n')
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker/uri").write_text("amqp://worker:x@localhost/pool")
    return tmp_path


async def test_it_opens_while_its_engine_is_away(directory: Path) -> None:
    driver = opened(settings.load(directory / "settings.toml"))

    assert isinstance(driver, DockerDriver)
    assert driver.owns_workers
    await driver.close()


@pytest.mark.parametrize(
    "file, content, problem",
    [
        ("container.toml", "Image = 3", r"container\.toml: Image: is missing"),
        ("worker/uri", "", r"driver\.worker_amqp_uri_file: is empty"),
        ("worker/other", "", r"driver\.worker_amqp_uri_file: .*holds other files \(other\)"),
    ],
)
def test_what_is_wrong_ends_the_start(file: str, content: str, problem: str, directory: Path) -> None:
    (directory / file).write_text(content)

    with pytest.raises(SettingsError, match=problem):
        opened(settings.load(directory / "settings.toml"))


def test_a_template_with_a_log_of_its_own_asks_the_engine_for_none() -> None:
    file, pool = Path("/run/uri"), PoolSettings("core", "dev")
    assert ContainerTemplate(pool, {"Image": "core", "HostConfig": {"LogConfig": {"Type": "syslog"}}}, file).names_log
    assert not ContainerTemplate(pool, {"Image": "core"}, file).names_log
