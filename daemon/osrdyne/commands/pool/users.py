"""The broker users of a pool and a directory with their addresses: passwords are made once, and kept there alone."""

from __future__ import annotations

import os
import secrets as random
from pathlib import Path
from urllib.parse import unquote, urlsplit

from osrdyne.commands.pool.place import BrokerPlace
from osrdyne_pool.broker.address_files import ADDRESS_FILES
from osrdyne_pool.topology import Topology
from osrdyne_runtime.console.output import CannotAsk
from osrdyne_runtime.settings import secrets


def passwords(declared: Topology, directory: Path) -> dict[str, str]:
    """Return the password of each user that has a file. Raises SettingsError, and CannotAsk for another user's file."""
    found = {}
    for user in declared.users:
        file = directory / f"{user.role}.uri"
        if not file.exists():
            continue
        parts = urlsplit(secrets.in_file(file, "--users"))
        if unquote(parts.username or "") != user.name or not parts.password:
            raise CannotAsk(f"{file} is not an address of user {user.name}; name another directory by --users")
        found[user.name] = unquote(parts.password)
    return found


def keep(declared: Topology, directory: Path, place: BrokerPlace) -> dict[str, str]:
    """Write the files that are missing or stale, with new passwords where there is none; return all passwords."""
    known = passwords(declared, directory)
    result = {user.name: known.get(user.name) or random.token_urlsafe(24) for user in declared.users}
    names = {user.role: user.name for user in declared.users}
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file, (role, interface) in ADDRESS_FILES.items():
            address = getattr(place.of_user(names[role], result[names[role]]), interface)
            _write(directory / file, f"{address}\n")
    except OSError as error:
        raise CannotAsk(f"--users {directory}: {error.strerror}: {error.filename}") from None
    return result


def _write(file: Path, text: str) -> None:
    """Replace a private file; owner and mode of one that is there stay."""
    if file.exists() and secrets.text_in(file, "--users") == text:
        return
    if not file.exists():
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    file.write_text(text, encoding="utf-8")
