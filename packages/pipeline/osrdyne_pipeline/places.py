"""Where a lake and files may be: folders of a file system. Pure.

A path means itself. An address such as `s3a://bucket/lake` would name a folder of that name here, so it is
refused. Spark would take brackets and stars for a pattern, unless it is told that a path is `LITERAL`.
"""

from __future__ import annotations

import re
from pathlib import Path

#: As pathlib keeps it, which makes `s3a:/bucket` of `s3a://bucket`.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
#: Option of Spark's readers: brackets and stars in a path stand for themselves. Spark reads its own tables so.
LITERAL = {"__globPaths__": "false"}


def problem(place: Path | str) -> str | None:
    """Say what is wrong with a place that is an address and not a path; None for a path."""
    found = _ADDRESS.match(str(place))
    if found is None:
        return None
    what = "the path alone" if found[1].lower() == "file" else "the path of a folder that is mounted here"
    return f"{place} begins with {found[1]}: as an address does, and only paths can be read and written: give {what}"
