"""Small objects beside the tables of a lake, as a recommendation or a page, and whether anything can be written."""

from __future__ import annotations

import contextlib
import mimetypes
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta

import obstore
from deltalake.exceptions import DeltaError
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.store import refusals

#: For which a request is tried, and waits for an answer.
TRIED = timedelta(seconds=30)


@contextlib.contextmanager
def refused(where: str) -> Iterator[None]:
    """Raise `LakeError`, with what to do, for an error of the store."""
    try:
        yield
    # deltalake raises OSError for what the store said.
    except (BaseError, DeltaError, OSError) as error:
        raise LakeError(f"{where} cannot be used: {refusals.meaning(error)}") from error


def opened(where: str) -> S3Store:
    """Return the store below an address, with what the environment says of it. Raises `LakeError`."""
    plain = (refusals.endpoint() or "").startswith("http:")
    with refused(where):
        return S3Store.from_url(
            where,
            client_options={"allow_http": plain, "timeout": TRIED},
            retry_config={"retry_timeout": TRIED, "max_retries": 3},
        )


def _kind(name: str) -> obstore.Attributes:
    """Return what an object says of its content: a browser shows a page only where it says that it is one."""
    kind, _ = mimetypes.guess_type(name)
    return {} if kind is None else {"Content-Type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind}


class Objects:
    """Objects below an address."""

    def __init__(self, where: str) -> None:
        """Reads the environment, which has credentials and endpoint. Raises `LakeError`."""
        self._where = where
        self._store = opened(where)

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None where there is none."""
        with refused(self._where):
            return self._tagged(name)[1]

    def write(self, name: str, text: str) -> None:
        """Replace an object; a reader has the old one or the new one."""
        with refused(self._where):
            obstore.put(self._store, name, text.encode(), attributes=_kind(name), use_multipart=False)

    def update(self, name: str, new: Callable[[bytes | None], str]) -> None:
        """Replace an object by what `new` makes of its content. Raises `LakeBusy` where it was written meanwhile.

        The store compares: it writes only where the object is still the one that was read, or is still missing.
        """
        with refused(self._where):
            tag, content = self._tagged(name)
        text = new(content)
        mode: obstore.PutMode = "create" if content is None else {"e_tag": tag}
        with refused(self._where):
            try:
                obstore.put(self._store, name, text.encode(), attributes=_kind(name), mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError) as error:
                raise LakeBusy(f"another process has written {self._where}/{name} meanwhile; run again") from error

    def _tagged(self, name: str) -> tuple[str | None, bytes | None]:
        try:
            found = obstore.get(self._store, name)
        except (NotFoundError, FileNotFoundError) as error:
            if "NoSuchKey" not in str(error):
                raise
            return None, None
        return found.meta["e_tag"], bytes(found.bytes())

    def remove(self, name: str) -> None:
        with refused(self._where):
            obstore.delete(self._store, name)

    def check_writable(self) -> None:
        """Raise `LakeError` where nothing can be written and removed. What it writes, it removes."""
        name = f"_osrdyne-{secrets.token_hex(8)}"
        self.write(name, "")
        self.remove(name)
