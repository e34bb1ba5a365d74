"""The broker users of a pool and a directory with their addresses: passwords are made once, and kept there alone."""

from __future__ import annotations

import os
import secrets as random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from osrdyne.commands.pool.place import BrokerPlace, without_password
from osrdyne_amqp.address import virtual_host
from osrdyne_pool.broker.address_files import ADDRESS_FILES
from osrdyne_pool.differences import Difference
from osrdyne_pool.topology import Topology
from osrdyne_runtime.console.output import CannotAsk
from osrdyne_runtime.settings import secrets


@dataclass(frozen=True)
class AddressChange:
    """A file that does not hold the address of its user."""

    file: Path
    address: str = field(repr=False)
    values: tuple[Difference, ...]
    #: Whether there is no such file.
    missing: bool
    refused: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"file {self.file}"

    def make(self) -> None:
        """Write the file; mode and owner of one that is there stay. Raises CannotAsk, and that file is as it was."""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self.file.resolve(), f"{self.address}\n")
        except OSError as error:
            raise CannotAsk(f"--users {self.file.parent}: {error.strerror}: {error.filename}") from None


@dataclass(frozen=True)
class UserFiles:
    """What the directory of the users' addresses holds, and what is to change there."""

    directory: Path
    #: The password of each user that has a file.
    known: dict[str, str] = field(repr=False)
    #: The same with new ones for the others.
    passwords: dict[str, str] = field(repr=False)
    changes: tuple[AddressChange, ...]

    @classmethod
    def of(cls, declared: Topology, directory: Path, place: BrokerPlace) -> UserFiles:
        """Read the directory, and change nothing. Raises SettingsError, and CannotAsk for files of other users."""
        known = _passwords(declared, directory, place)
        passwords = {user.name: known.get(user.name) or random.token_urlsafe(24) for user in declared.users}
        names = {user.role: user.name for user in declared.users}
        wanted = {
            directory / file: getattr(place.of_user(names[role], passwords[names[role]]), interface)
            for file, (role, interface) in ADDRESS_FILES.items()
        }
        return cls(directory, known, passwords, tuple(_changes(wanted)))


def _passwords(declared: Topology, directory: Path, place: BrokerPlace) -> dict[str, str]:
    found, host = {}, urlsplit(place.amqp).hostname
    for user in declared.users:
        file = directory / f"{user.role}.uri"
        if not file.exists():
            continue
        address = secrets.in_file(file, "--users")
        parts, vhost = urlsplit(address), virtual_host(address)
        if unquote(parts.username or "") != user.name or not parts.password:
            raise CannotAsk(f"{file} is not an address of user {user.name}; name another directory by --users")
        if (parts.hostname, vhost) != (host, place.vhost):
            raise CannotAsk(
                f"{file} is an address of virtual host {vhost} at {parts.hostname}, and not of virtual host "
                f"{place.vhost} at {host}; name another directory by --users, or another broker by --broker-file"
            )
        found[user.name] = unquote(parts.password)
    return found


def _changes(wanted: dict[Path, str]) -> Iterator[AddressChange]:
    for file, address in wanted.items():
        now = secrets.text_in(file, "--users").strip() if file.exists() else ""
        if now != address:
            found, declared = without_password(now) if now else None, without_password(address)
            value = Difference("address", found, declared)
            if found == declared:
                value = Difference("password", "another", "that of its user")
            yield AddressChange(file, address, (value,), missing=not file.exists())


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all; a new one is private."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as part:
            if file.exists():
                former = file.stat()
                os.fchown(descriptor, former.st_uid, former.st_gid)
                os.fchmod(descriptor, former.st_mode & 0o7777)
            part.write(text)
            part.flush()
            os.fsync(descriptor)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
