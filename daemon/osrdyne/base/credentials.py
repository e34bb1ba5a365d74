"""Addresses with a password: each is given in a setting, or in a file that a setting names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from osrdyne_runtime.settings import secrets

#: Prefix of the environment variables of settings; nested names are joined by two underscores.
ENVIRONMENT_PREFIX = "OSRDYNE_DAEMON_"


def secret(value: SecretStr | None, file: Path | None, name: str) -> str:
    """Return a credential from the setting itself or from the file it names. Raises `SettingsError`."""
    variable = ENVIRONMENT_PREFIX + name.replace(".", "__").upper()
    return secrets.given(None if value is None else value.get_secret_value(), file, name, variable=variable)


def address(value: SecretStr | None, file: Path | None, name: str) -> Callable[[], str]:
    """Return a function that reads a credential at each call, so that a changed file needs no restart.

    Raises `SettingsError` at once when the credential cannot be read now.
    """
    secret(value, file, name)
    return partial(secret, value, file, name)
