"""Addresses with a password: each is given in a setting, or in a file that a setting names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

from osrdyne_protocol.errors import SettingsError

#: Prefix of the environment variables of settings; nested names are joined by two underscores.
ENVIRONMENT_PREFIX = "OSRDYNE_DAEMON_"


def secret(value: SecretStr | None, file: Path | None, name: str) -> str:
    """Return a credential from the setting itself or from the file it names. Raises `SettingsError`."""
    if value is not None:
        if not value.get_secret_value().strip():
            raise SettingsError(name, "is empty")
        return value.get_secret_value().strip()
    if file is None:
        variable = ENVIRONMENT_PREFIX + name.replace(".", "__").upper()
        raise SettingsError(name, f"is missing; set {name}_file to a file with the address, or {variable}")
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise SettingsError(f"{name}_file", f"cannot be read: {error.strerror}: {file}") from None
    except ValueError:
        raise SettingsError(f"{name}_file", f"is not a file of UTF-8 text: {str(file)!r}") from None
    if not text:
        raise SettingsError(f"{name}_file", f"is empty: {file}")
    return text


def address(value: SecretStr | None, file: Path | None, name: str) -> Callable[[], str]:
    """Return a function that reads a credential at each call, so that a changed file needs no restart.

    Raises `SettingsError` at once when the credential cannot be read now.
    """
    secret(value, file, name)
    return lambda: secret(value, file, name)
