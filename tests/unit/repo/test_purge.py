"""`make purge` shows what it would remove, removes that and nothing that was there before, and may be repeated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import purge
import steps

Shown = pytest.CaptureFixture[str]


class MadeFiles:
    """What the targets made, in a folder of the test's own. Its pool has no process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        monkeypatch.setattr(purge, "RECORDS", folder / "var/osrdyne/made")
        monkeypatch.setattr(purge, "CACHE", folder / "home/.cache/osrdyne")
        monkeypatch.setattr("superuser.prefix", lambda _: [])
        monkeypatch.setattr(steps, "VENV", folder / "checkout/.venv")
        monkeypatch.setattr(steps, "ROOT", folder / "checkout")
        monkeypatch.setattr(steps, "BIN", folder / "bin")
        monkeypatch.setenv("DPKG_ROOT", str(folder))
        (folder / "checkout/tools").mkdir(parents=True)
        shutil.copy(Path(__file__).parents[3] / "Makefile", folder / "checkout")
        (folder / "checkout/tools/setup.py").touch()
        (folder / "bin").mkdir()
        self.script("bin/python", 'echo "$@" > down')

    def script(self, name: str, line: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{line}\n")
        file.chmod(0o755)

    def add(self, name: str, text: str = "x" * 100_000) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pool(self, *paths: Path, source: str = "named", broker: str = "") -> Path:
        """A pool of `make up`, with what is recorded of it."""
        here = self.add("var/osrdyne/rabbitmq/source.json", json.dumps({"source": source, "engine": "docker"}))
        made = {"paths": [str(path) for path in (*paths, here.parent)], "accounts": ["no-such-account"]}
        record = {"osrdyne_vhost": "v", "osrdyne_named_broker": broker, "osrdyne_broker_directory": str(here.parent)}
        return self.add("var/osrdyne/made/core.json", json.dumps({**record, "osrdyne_made": made}))

    def run(self, *arguments: str) -> None:
        self._monkeypatch.setattr("sys.argv", ["purge.py", *arguments])
        purge.main()

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeFiles:
    return MadeFiles(tmp_path, monkeypatch)


def all_of_it(made: MadeFiles) -> None:
    made.add("home/.cache/osrdyne/rootfs/a/file")
    made.add("checkout/.venv/bin/python")
    made.add("checkout/.mypy_cache/a")
    made.pool(made.add("etc/osrdyne/core/settings.toml").parent, broker="broker.example")


@pytest.mark.parametrize("argument", ["--confirm=", "--confirm=no", "--confirm=y"])
def test_without_a_yes_it_shows_what_would_go_with_sizes_and_removes_nothing(
    argument: str, made: MadeFiles, capsys: Shown
) -> None:
    all_of_it(made)
    before = made.files()

    made.run(argument)

    assert made.files() == before
    shown = capsys.readouterr().out
    for line in ("home/.cache/osrdyne, what tests", "checkout/.venv and what tools left", "etc/osrdyne/core"):
        assert f"K  {made.folder}/{line}" in shown
    assert "pool core: stopped by `make down`" in shown
    assert "nothing has been removed yet; `make purge CONFIRM=yes` does it" in shown


def test_with_a_yes_it_stops_the_pool_first_and_all_is_gone_but_what_was_there_before(
    made: MadeFiles, capsys: Shown
) -> None:
    all_of_it(made)
    kept = {"etc/osrdyne/other/settings.toml", "home/.cache/uv/archive", "checkout/README.md"}
    for name in kept:
        made.add(name)
    # `make down` finds all that it needs
    made.script("bin/python", f'ls {made.folder}/etc/osrdyne > {made.folder}/down; echo "$@" >> {made.folder}/down')

    made.run("--confirm=yes")

    tools = {"checkout/Makefile", "checkout/tools/setup.py", "bin/python"}
    assert made.files() == kept | tools | {"down"}
    play = f"{made.folder}/checkout/tools/play.py down -e @{made.folder}/var/osrdyne/made/core.json"
    assert (made.folder / "down").read_text().split("\n")[:3] == ["core", "other", play]
    assert not (made.folder / "var/osrdyne").exists()
    assert "this stays: on your broker broker.example the virtual host v" in capsys.readouterr().out

    made.run("--confirm=yes")

    assert "there is nothing to remove" in capsys.readouterr().out


def test_a_pool_that_cannot_be_stopped_is_left_as_it_is_and_the_next_purge_goes_on(made: MadeFiles) -> None:
    all_of_it(made)
    made.script("bin/python", "exit 1")
    before = made.files()

    with pytest.raises(SystemExit, match=r"pool core: stopped by `make down`: .* failed; the rest is still here"):
        made.run("--confirm=yes")

    assert made.files() == before
    made.script("bin/python", "exit 0")
    made.run("--confirm=yes")
    assert not (made.folder / "etc/osrdyne").exists()


def package(made: MadeFiles, *installed: str) -> None:
    """Have these packages recorded as installed for osrdyne, and installed."""
    made.add("var/lib/osrdyne/packages.json", json.dumps({"installed": installed, "unfinished": None}))
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n"
        f"Maintainer: a\nDescription: a\n\n"
        for name in installed
    )
    made.add("var/lib/dpkg/status", status)


def test_packages_are_listed_with_the_command_that_removes_them_and_stay_recorded_until_then(
    made: MadeFiles, capsys: Shown
) -> None:
    all_of_it(made)
    package(made, "redis-server", "postgresql")

    made.run("--confirm=yes")

    assert "apt-get purge --auto-remove redis-server postgresql" in capsys.readouterr().out
    assert "var/lib/osrdyne/packages.json" in made.files()
    # Once they are gone
    made.add("var/lib/dpkg/status", "")
    made.run("--confirm=yes")
    assert "var/lib/osrdyne/packages.json" not in made.files()


@pytest.mark.parametrize(
    "ours, says",
    [
        (True, "the data of the broker; it goes with the package"),
        (False, "in the RabbitMQ that was here before, the vi"),
    ],
    ids=["installed for osrdyne", "there before"],
)
def test_a_broker_of_the_distribution_keeps_its_data_and_the_output_says_when_they_go(
    ours: bool, says: str, made: MadeFiles, capsys: Shown
) -> None:
    made.pool(source="package")
    package(made, *([purge.BROKER_PACKAGE] if ours else []))

    made.run("--confirm=yes")

    said = capsys.readouterr().out
    assert f"this stays: {says}" in said
    assert (f"apt-get purge --auto-remove {purge.BROKER_PACKAGE}" in said) is ours


def test_a_container_goes_with_its_volume_before_what_says_that_there_is_one(made: MadeFiles) -> None:
    file = made.pool(source="container")

    found = [step.command for step in purge.of_record(file, record_of(file))]

    container = [("docker", "rm", "--force", purge.CONTAINER), ("docker", "volume", "rm", "--force", purge.CONTAINER)]
    assert found[1:3] == container
    assert [command[-1] for command in found[3:]] == [str(made.folder / "var/osrdyne/rabbitmq"), str(file)]


def record_of(file: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(file.read_text())
    return record
