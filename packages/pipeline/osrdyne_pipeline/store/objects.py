"""Small objects beside the tables of a lake, as a recommendation or a page, and whether anything can be written."""

from __future__ import annotations

import contextlib
import mimetypes
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import obstore
from deltalake.exceptions import DeltaError
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.store import refusals

#: How long a request is tried, and how long it waits for an answer.
TRIED = timedelta(seconds=30)

#: Header -> a write with it that a server must refuse, where the object is there: only new, or of another content.
_REFUSED: Mapping[str, obstore.PutMode] = {"If-None-Match": "create", "If-Match": {"e_tag": f'"{"0" * 32}"'}}


@contextlib.contextmanager
def store_errors(where: str) -> Iterator[None]:
    """Turn an error of the store into a `LakeError` with what to do."""
    try:
        yield
    # deltalake raises OSError for what the store said.
    except (BaseError, DeltaError, OSError) as error:
        raise LakeError(f"{where} cannot be used: {refusals.meaning(error)}") from error


def opened(where: str) -> S3Store:
    """Return the store below an address, with what the environment says of it. Raises `LakeError`."""
    plain = (refusals.endpoint() or "").startswith("http:")
    with store_errors(where):
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
        with store_errors(self._where):
            return self._tagged(name)[1]

    def write(self, name: str, text: str) -> None:
        """Replace an object; a reader has the old one or the new one."""
        with store_errors(self._where):
            obstore.put(self._store, name, text.encode(), attributes=_kind(name), use_multipart=False)

    def update(self, name: str, new: Callable[[bytes | None], str]) -> None:
        """Replace an object by what `new` makes of its content. Raises `LakeBusy` where it was written meanwhile.

        The store compares: it writes only where the object is still the one that was read, or is still missing.
        """
        with store_errors(self._where):
            tag, content = self._tagged(name)
        text = new(content)
        mode: obstore.PutMode = "create" if content is None else {"e_tag": tag}
        with store_errors(self._where):
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
        with store_errors(self._where):
            obstore.delete(self._store, name)

    def check_writable(self) -> None:
        """Raise `LakeError` where nothing can be written and removed, or where a write is never refused.

        What it writes, it removes.
        """
        name = f"_osrdyne-{secrets.token_hex(8)}"
        self.write(name, "")
        ignored = [header for header, mode in _REFUSED.items() if self._writes(name, mode)]
        self.remove(name)
        if ignored:
            raise LakeError(
                f"{self._where} cannot be used: the server ignores {' and '.join(ignored)}, so that of two processes "
                "at once one would undo what the other wrote: use another"
            )

    def _writes(self, name: str, mode: obstore.PutMode) -> bool:
        with store_errors(self._where):
            try:
                obstore.put(self._store, name, b"", mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True
