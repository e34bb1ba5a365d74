"""The file that holds the workers' address of the broker: where it may be, and how it is kept out of what is shown.

Containers get the directory, not the file: a file that is mounted by itself stays the one that it was, so that a new
password, which is written beside it and renamed over it, would not be seen.
"""

from __future__ import annotations

from pathlib import Path

from osrdyne.drivers import redaction
from osrdyne_protocol.errors import SettingsError

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


def shown(line: str, file: Path) -> str:
    """Return a line of a worker's output as an error may show it, without the file's password."""
    try:
        return redaction.shown(line, redaction.passwords(file.read_text(encoding="utf-8").strip()))
    except (OSError, ValueError):
        return ""  # what cannot be struck out is not shown
