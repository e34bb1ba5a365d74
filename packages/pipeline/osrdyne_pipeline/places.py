"""Where a lake and files may be: folders of a file system, and for a lake also S3-compatible object stores. Pure.

A path means itself. An address such as `gs://bucket/lake` would name a folder of that name here, so it is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

#: As pathlib keeps it, which makes `s3a:/bucket` of `s3a://bucket`.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
#: What begins an address of an object store; Hadoop's word for it, too.
STORES = ("s3", "s3a")
#: Names of buckets are more restricted than that; the store says so.
_STORE = re.compile(r"s3a?:/{1,2}([a-z0-9][a-z0-9._-]+)((?:/[^/]+)*)/*", re.IGNORECASE)


def scheme(place: Path | str) -> str | None:
    """Return what an address begins with, in small letters; None for a path."""
    found = _ADDRESS.match(str(place))
    return None if found is None else found[1].lower()


def problem(place: Path | str) -> str | None:
    """Say what is wrong with a place that is an address and not a path; None for a path."""
    found = scheme(place)
    if found is None:
        return None
    what = "the path alone" if found == "file" else "the path of a folder that is mounted here"
    return f"{place} begins with {found}: as an address does, and only paths can be read and written: give {what}"


def lake_problem(place: Path | str) -> str | None:
    """Say what is wrong with a place of a lake, which may also be an address of an object store; else None."""
    if scheme(place) not in STORES:
        wrong = problem(place)
        return wrong and f"{wrong}, or a bucket of an S3-compatible store: s3://BUCKET/PREFIX"
    if store(place) is None:
        return f"{place} does not name a bucket: give s3://BUCKET/PREFIX"
    return None


def store(place: Path | str) -> tuple[str, str] | None:
    """Return bucket and prefix of an address of an object store; None for anything else."""
    found = _STORE.fullmatch(str(place))
    return None if found is None else (found[1], found[2].strip("/"))
