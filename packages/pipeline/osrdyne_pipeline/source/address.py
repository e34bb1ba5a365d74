"""The broker's address, a credential: in a file that an option names, or in the environment. It is read where a
connection is made, for `osrdyne_events` on each executor, and is in no option, plan, page or checkpoint.
"""

from __future__ import annotations

from osrdyne_pipeline.errors import SourceError
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings import secrets

#: Environment variable that holds the address where no file is named.
VARIABLE = "OSRDYNE_EVENTS_URI"


def read(uri_file: str | None) -> str:
    """Return the address. Raises `SourceError`, which shows nothing of it."""
    try:
        return secrets.from_environment(VARIABLE, uri_file, "the broker's address", "option uri_file")
    except SettingsError as error:
        raise SourceError(str(error)) from None
