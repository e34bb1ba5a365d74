"""PostgreSQL is installed only where there is none, and without a server that would start by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import apt, postgres


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The setting of Debian's package, on a machine without a server."""
    monkeypatch.setattr(postgres, "SERVERS", tmp_path / "servers")
    monkeypatch.setattr(postgres, "NO_CLUSTER", tmp_path / "createcluster.d/osrdyne.conf")
    return postgres.NO_CLUSTER


def add_server(version: str) -> Path:
    folder = postgres.SERVERS / version / "bin"
    folder.mkdir(parents=True)
    (folder / "postgres").touch()
    return folder


def test_the_package_is_installed_with_the_setting_by_which_it_makes_no_cluster(
    setting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(apt, "install", lambda *names, why, settings: asked.append((names, why, settings)))

    postgres.install()

    assert asked == [(("postgresql",), "PostgreSQL", {setting: "create_main_cluster = false"})]


def test_a_server_that_is_there_is_used_as_it_is_and_of_several_the_newest(
    setting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apt, "install", lambda *_, **__: pytest.fail("it installs"))
    folders = [add_server(version) for version in ("9.6", "17", "15")]

    postgres.install()

    assert postgres.newest() == folders[1]
    assert not setting.parent.exists()


def test_a_machine_without_postgresql_gets_an_error_that_names_make_engines(setting: Path) -> None:
    with pytest.raises(postgres.PostgresFailed, match="make engines"):
        postgres.program("initdb")
