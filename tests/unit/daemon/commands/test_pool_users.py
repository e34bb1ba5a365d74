"""The directory with the addresses of a pool's users: what is a change there, what is refused, how it is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from osrdyne.commands.pool import place
from osrdyne.commands.pool.users import UserFiles
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from osrdyne_runtime.console.output import CannotAsk

DECLARED = topology(PoolSettings("core"))
ADMIN = "amqp://admin:word@host:5672/v"


def files(directory: Path, address: str = ADMIN) -> UserFiles:
    return UserFiles.of(DECLARED, directory, place.of(address))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One that a first run has written."""
    for change in files(tmp_path / "users").changes:
        change.make()
    return tmp_path / "users"


def test_all_files_are_new_at_first_and_nothing_changes_after_that(tmp_path: Path) -> None:
    first = files(tmp_path)
    assert len(first.changes) == 8
    assert all(change.missing for change in first.changes)
    assert "word" not in str([change.values for change in first.changes])
    for change in first.changes:
        change.make()

    assert files(tmp_path).changes == ()
    assert files(tmp_path).passwords == first.passwords


def test_another_port_is_a_change_that_is_shown_without_a_password(directory: Path) -> None:
    changes = files(directory, "amqp://admin:word@host:5673/v").changes

    assert {change.file.name for change in changes} == {
        f"{role}.uri" for role in ("client", "worker", "daemon", "monitor", "operator", "pipeline")
    }
    (value,) = changes[0].values
    assert str(value) == ("address is 'amqp://core-client@host:5672/v', declared is 'amqp://core-client@host:5673/v'")
    assert str(changes[0]) == f"file {directory}/client.uri"


@pytest.mark.parametrize("address", ["amqp://admin:word@other:5672/v", "amqp://admin:word@host:5672/w"])
def test_an_address_of_another_host_or_virtual_host_is_refused(directory: Path, address: str) -> None:
    with pytest.raises(CannotAsk, match=r"client.uri is an address of virtual host v at host, and not of virtual host"):
        files(directory, address)


def test_users_get_the_ca_of_an_address_and_not_the_certificate_of_its_user(tmp_path: Path) -> None:
    address = "amqps://admin:word@host/v?cacertfile=/ca.pem&certfile=/admin.pem&keyfile=/admin.key&heartbeat=5"

    addresses = {change.address.partition("?")[2] for change in files(tmp_path, address).changes}

    assert addresses == {"cacertfile=/ca.pem"}


def test_a_file_is_replaced_whole_and_keeps_mode_and_owner(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory / "client.uri"
    former = file.read_text()
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 1234)
    owner = file.stat().st_uid
    change, *_ = files(directory, "amqp://admin:word@host:5673/v").changes

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(CannotAsk, match="No space left on device"):
            change.make()
    assert file.read_text() == former
    change.make()

    assert ":5673/" in file.read_text()
    assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o640, owner)
    assert len([*directory.iterdir()]) == 8
