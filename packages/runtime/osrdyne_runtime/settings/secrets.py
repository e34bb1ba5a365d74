"""Secrets that a program is given: a password, a token, or an address that holds one. The one reader of them.

A secret is given itself, in a file, or in a variable of the environment. The caller reads it again at each use, so that
a new one needs no restart. Errors name the setting, option or variable, and the file; they never show the secret.
"""

from __future__ import annotations

import os
from pathlib import Path

from osrdyne_protocol.errors import SettingsError


def given(value: str | None, file: str | Path | None, name: str, file_name: str = "", variable: str = "") -> str:
    """Return a secret that is given itself or in a file. Raises SettingsError, as `in_file` and `check_one` do."""
    check_one(value, file, name, file_name, variable)
    if file is not None:
        return in_file(file, file_name or f"{name}_file")
    if value is None or not value.strip():
        raise SettingsError(name, "is empty")
    return value.strip()


def from_environment(variable: str, file: str | Path | None, name: str, file_name: str) -> str:
    """Return the secret of a file where one is named, else that of a variable. Raises SettingsError."""
    return given(os.environ.get(variable) if file is None else None, file, name, file_name, variable)


def check_one(value: str | None, file: str | Path | None, name: str, file_name: str = "", variable: str = "") -> None:
    """Raise SettingsError where a secret is given twice, or not at all.

    `name` is what it is called, `file_name` what names its file (by default `{name}_file`), and `variable` what to set.
    """
    if value is not None and file is not None:
        raise given_twice(name)
    if value is None and file is None:
        remedy = f"name a file that holds it by {file_name or f'{name}_file'}"
        raise SettingsError(name, f"is missing; {remedy}, or set {variable}" if variable else f"is missing; {remedy}")


def given_twice(name: str, where: str = "") -> SettingsError:
    """Return the error of a secret that is given both itself and in a file."""
    return SettingsError(name, f"is given twice{f' in {where}' if where else ''}, itself and as a file; give one")


def in_file(file: str | Path, name: str) -> str:
    """Return the first line of a file of UTF-8 text. Raises SettingsError with `name`, which names the file."""
    first = text_in(file, name).strip().partition("\n")[0].strip()
    if not first:
        raise SettingsError(name, f"is empty: {file}")
    return first


def text_in(file: str | Path, name: str) -> str:
    """Return what a file of UTF-8 text holds, without a byte order mark. Raises SettingsError with `name`."""
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(name, f"cannot be read: {error.strerror}: {file}") from None
    except ValueError:  # the path may be what cannot be used, too
        raise SettingsError(name, f"is not a file of UTF-8 text: {str(file)!r}") from None
