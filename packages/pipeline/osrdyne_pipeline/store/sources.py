"""Files of events in an object store: found by their address, and fetched for as long as they are read."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import NotFoundError
from obstore.store import S3Store

from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.places import store
from osrdyne_pipeline.source.files import LINES, LOGS, NOT_FILES, PARQUET, EventFile
from osrdyne_pipeline.store.objects import opened, store_errors

if TYPE_CHECKING:
    from obstore import ObjectMeta


def find(address: str) -> list[EventFile]:
    """Return the files at an address: the object of that name, or those below it, in order.

    An object is recognized by its tag and size, which is what the store says of its content. Names that begin with `_`
    or `.` are left out. Raises `SourceError` where there is none, and `LakeError` where the store cannot be used.
    """
    bucket, prefix = store(address) or ("", "")
    found: list[EventFile] = []
    for stored in _listed(f"s3://{bucket}", prefix):
        parts = stored["path"].removeprefix(prefix).strip("/").split("/")
        if log := next((part for part in parts if part in LOGS), None):
            raise SourceError(NOT_FILES.format(path=address, log=log))
        if stored["path"].endswith((PARQUET, *LINES)) and not any(part.startswith(("_", ".")) for part in parts):
            identity = f"{stored['e_tag']} {stored['size']}"
            digest = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
            found.append(EventFile(f"s3://{bucket}/{stored['path']}", stored["size"], digest))
    if not found:
        raise SourceError(f"{address}: there are no files of {', '.join((PARQUET, *LINES))}")
    return sorted(found, key=lambda file: file.name)


def _listed(bucket: str, prefix: str) -> Iterable[ObjectMeta]:
    """Return what the store says of the object of that name, or else of those below it."""
    with store_errors(bucket):
        place = opened(bucket)
        if prefix.endswith((PARQUET, *LINES)):
            # Spark writes folders that are named like files.
            with contextlib.suppress(NotFoundError, FileNotFoundError):
                return [obstore.head(place, prefix)]
        return obstore.list(place, prefix or None).collect()


@contextlib.contextmanager
def fetched(files: Sequence[EventFile]) -> Iterator[dict[str, str]]:
    """Give the paths of copies, with the address of each; they are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="osrdyne-pipeline-") as folder:
        copies: dict[str, str] = {}
        stores: dict[str, S3Store] = {}
        for number, file in enumerate(files):
            bucket, path = store(file.name) or ("", "")
            copy = Path(folder, f"{number}-{path.rpartition('/')[2]}")
            with store_errors(file.name), copy.open("wb") as written:
                stores.setdefault(bucket, opened(f"s3://{bucket}"))
                for part in obstore.get(stores[bucket], path):
                    written.write(part)
            copies[str(copy)] = file.name
        yield copies
