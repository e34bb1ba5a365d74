"""The broker's address, a credential: in a file that an option names, or in the environment. It is read where a
connection is made, on the driver and on each executor, and is in no option, plan, page or checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path

from osrdyne_pipeline.errors import SourceError

#: Environment variable that holds the address where no file is named.
VARIABLE = "OSRDYNE_EVENTS_URI"


def read(uri_file: str | None) -> str:
    """Return the address. Raises `SourceError`, which shows nothing of it."""
    if uri_file is None:
        if address := os.environ.get(VARIABLE, "").strip():
            return address
        raise SourceError(f"no address of the broker: name a file that holds it (option uri_file), or set {VARIABLE}")
    try:
        return Path(uri_file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SourceError(f"the broker's address cannot be read from {uri_file}: {reason}") from None
