"""The settings file is looked at while the daemon runs: what counts as a change, and what a wrong one does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from osrdyne.errors import DriverError
from osrdyne.settings import file as settings_file
from osrdyne.settings.daemon import DaemonSettings
from osrdyne.settings.file import CHECK_SECONDS, SettingsFile

pytestmark = [pytest.mark.looptime, pytest.mark.fast]

GOOD = """
[pool]
name = "core"
unbind_delay = 60
[pool.overrides.LAX]
stop_delay = 5
[broker]
amqp_uri = "amqp://daemon:verysecret@localhost:5672/pool"
management_uri = "http://daemon:verysecret@localhost:15672"
[driver]
kind = "noop"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text(GOOD)
    return file


def write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_text(text)


def mount(path: Path) -> None:
    """Make the file a link through a link to a directory, as in a mounted ConfigMap."""
    for name, text in (("one", GOOD), ("two", GOOD.replace("60", "61"))):
        (path.parent / name).mkdir()
        (path.parent / name / "settings.toml").write_text(text)
    (path.parent / "..data").symlink_to("one")
    path.unlink()
    path.symlink_to("..data/settings.toml")


def taken(settings: DaemonSettings) -> DaemonSettings:
    return settings


@asynccontextmanager
async def looking(
    file: SettingsFile, make: Callable[[DaemonSettings], DaemonSettings] = taken
) -> AsyncIterator[asyncio.Task[DaemonSettings]]:
    task = asyncio.create_task(file.changed(make))
    await asyncio.sleep(CHECK_SECONDS / 2)
    yield task
    task.cancel()
    await asyncio.wait((task,))


async def looks(number: int) -> None:
    await asyncio.sleep(number * CHECK_SECONDS)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of wrong settings; passwords never."""
    assert "verysecret" not in caplog.text
    lines = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [str(vars(line)["reason"]) for line in lines]


async def test_a_change_counts_once_two_looks_have_found_the_same(path: Path) -> None:
    file = SettingsFile(path)
    async with looking(file) as changed:
        await looks(10)
        # Given a file that is still being written, half of which would be right by itself
        write(path, GOOD.replace("60", "61"))
        await looks(1)
        write(path, GOOD.replace("60", "62"))
        await looks(1)
        assert not changed.done()
        # When nothing more comes
        await looks(1)
        assert changed.result().pool.unbind_delay == 62.0
    assert file.settings.pool.unbind_delay == 62.0


async def test_what_means_the_same_is_not_a_change(path: Path) -> None:
    file = SettingsFile(path)
    async with looking(file) as changed:
        write(path, "# explained\n" + GOOD.replace("60", '"PT1M"'))
        await looks(5)
        assert not changed.done()
        write(path, GOOD.replace("60", "61"))
        await looks(2)
        assert changed.result().pool.unbind_delay == 61.0


async def test_a_link_that_is_moved_is_a_change(path: Path, tmp_path: Path) -> None:
    mount(path)
    file = SettingsFile(path)
    async with looking(file) as changed:
        # When it changes as the kubelet does it
        (tmp_path / "..next").symlink_to("two")
        (tmp_path / "..next").rename(tmp_path / "..data")
        await looks(2)
        assert changed.result().pool.unbind_delay == 61.0


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (GOOD.replace("60", "-1"), "pool.unbind_delay"),
        (GOOD + "[limits]\nstarts_in_flite = 1\n", "limits.starts_in_flite"),
        (GOOD.replace("[pool]", "[pool"), "is not TOML"),
        (None, "does not exist"),
    ],
)
async def test_wrong_settings_are_reported_once_and_change_nothing(
    path: Path, caplog: pytest.LogCaptureFixture, text: str | None, where: str
) -> None:
    file = SettingsFile(path)
    before = file.settings
    async with looking(file) as changed:
        write(path, text)
        await looks(20)
        assert not changed.done()
        (reason,) = complaints(caplog)
        assert reason.startswith(str(path))
        assert where in reason
        assert (file.settings, file.error) == (before, reason)
        # Until the file is right
        write(path, GOOD.replace("60", "61"))
        await looks(2)
        assert changed.result().pool.unbind_delay == 61.0
    assert file.error is None


async def test_wrong_settings_are_forgotten_once_the_file_is_as_it_was(path: Path) -> None:
    file = SettingsFile(path)
    async with looking(file) as changed:
        write(path, "wrong")
        await looks(2)
        reported = file.error
        write(path, GOOD)
        await looks(1)
        assert reported is not None
        assert file.error is None
        await looks(5)
        assert not changed.done()


@pytest.mark.parametrize("error", [DriverError("no such template"), ZeroDivisionError("a mistake of ours")])
async def test_settings_of_which_nothing_can_be_made_are_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    missing = [error]

    def make(settings: DaemonSettings) -> DaemonSettings:
        if missing:
            raise missing[0]
        return settings

    file = SettingsFile(path)
    async with looking(file, make) as changed:
        write(path, GOOD.replace("60", "61"))
        await looks(10)
        (reason,) = complaints(caplog)
        assert str(error) in reason
        # When what they need is there, without another change of theirs
        missing.clear()
        await looks(1)
        assert changed.result().pool.unbind_delay == 61.0


KUBERNETES = GOOD.replace('kind = "noop"', 'kind = "kubernetes"\nworker_secret = "x"\ntemplate_directory = "TEMPLATES"')
DOCKER = GOOD.replace(
    'kind = "noop"', 'kind = "docker"\nworker_amqp_uri_file = "x"\ntemplate_file = "TEMPLATES/a.json"'
)


@pytest.mark.parametrize(
    ("text", "name"), [(KUBERNETES, "deployment.yaml"), (KUBERNETES, "scaledobject.yaml"), (DOCKER, "a.json")]
)
async def test_a_changed_template_is_a_change(path: Path, tmp_path: Path, text: str, name: str) -> None:
    write(path, text.replace("TEMPLATES", str(tmp_path)))
    (tmp_path / name).write_text("one")
    file = SettingsFile(path)
    async with looking(file) as changed:
        (tmp_path / "unrelated.yaml").write_text("two")
        await looks(3)
        assert not changed.done()
        (tmp_path / name).write_text("two")
        await looks(2)
        assert changed.result() == file.settings
    async with looking(file) as changed:
        await looks(3)
        assert not changed.done()


def test_what_has_changed_is_named_without_its_value(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(
        GOOD.replace("60", "61").replace("verysecret@localhost:5672", "other@localhost:5672")
        + "[limits]\nstarts_in_flight = 1\n"
    )

    found = settings_file.changes(SettingsFile(path).settings, SettingsFile(other).settings)

    assert found == ["pool.overrides", "pool.unbind_delay", "broker.amqp_uri", "limits.starts_in_flight"]
