"""The workers' address for containers: alone in its directory, and in no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne.drivers.docker import credential
from osrdyne_protocol.errors import SettingsError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The address, in a directory of its own."""
    path = tmp_path / "worker" / "uri"
    path.parent.mkdir()
    path.write_text("amqp://worker:p%40ss@broker/pool\n")
    return path


def test_a_file_alone_in_its_directory_is_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credential.check(file) == file
    monkeypatch.chdir(file.parent)
    assert credential.check(Path("uri")) == file


def test_a_directory_that_would_show_workers_more_is_refused(file: Path) -> None:
    (file.parent / "daemon.uri").touch()

    with pytest.raises(SettingsError, match=r"worker_amqp_uri_file: .*holds other files \(daemon\.uri\).*of its own"):
        credential.check(file)


def test_a_link_which_no_container_could_follow_is_refused(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "uri"
    link.parent.mkdir()
    link.symlink_to(file)

    with pytest.raises(SettingsError, match="symbolic link"):
        credential.check(link)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be listed: No such file"):
        credential.check(tmp_path / "absent" / "uri")


def test_a_line_is_shown_short_printable_and_without_the_password(file: Path) -> None:
    said = "refused\x1b[0m amqp://worker:p%40ss@broker as p@ss" + "." * 500

    [shown] = credential.shown([said], file)

    assert shown.startswith("refused [0m amqp://worker:***@broker as ***...")
    assert len(shown) == 200


@pytest.mark.parametrize("content", [None, "amqp://worker:p@ss@[broker/pool", b"\xff"])
def test_what_cannot_be_struck_out_is_not_shown(content: str | bytes | None, file: Path) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    assert credential.shown(["p@ss"], file) == ()
