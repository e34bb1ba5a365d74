"""The file that holds the workers' address of the broker: where it may be, and how its password is kept out of texts.

Containers mount the directory, not the file: a mounted file would stay the old one when a new file with a new password
is renamed over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from osrdyne.drivers import redaction
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings import secrets

_SETTING = "driver.worker_amqp_uri_file"


def check(file: Path) -> Path:
    """Return the file's absolute path. Raises `SettingsError` where its directory would show workers anything else."""
    file = file.absolute()
    if file.is_symlink():
        raise SettingsError(_SETTING, f"{file} is a symbolic link, which leads nowhere in a container; make it a file")
    try:
        others = sorted(entry.name for entry in file.parent.iterdir() if entry.name != file.name)
    except OSError as error:
        raise SettingsError(_SETTING, f"{file.parent} cannot be listed: {error.strerror}") from None
    if others:
        raise SettingsError(
            _SETTING,
            f"{file.parent} holds other files ({', '.join(others[:3])}), and every worker would see them; "
            "give the file a directory of its own",
        )
    return file


def shown(lines: Sequence[str], file: Path) -> tuple[str, ...]:
    """Return a worker's last lines as an error may show them, without the file's password."""
    try:
        return redaction.last_lines(lines, redaction.passwords(secrets.in_file(file, _SETTING)))
    except ValueError:
        return ()  # without the password, it cannot be removed from the lines: show nothing
