"""Data streams as objects of a bucket, on S3 or a server that speaks its protocol. Only this module imports obstore.

An object appears when it is whole. What has no name of ours below the prefix is left alone. An object's age is by the
clock of the server. A touch is a small object beside it, because S3 changes the time of an object only when it is
written again.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.errors import StreamLost
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.settings import S3Settings
from osrdyne_relay.streams.base import CHUNK, stored_name, stream_in
from osrdyne_runtime import certificate_faults, log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.settings import secrets

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

log = log_lines.logger(__name__)

#: Bytes of a part, and parts that are sent at the same time. A stream has 10,000 parts at most.
PART_BYTES, PARTS_AT_ONCE = 8_388_608, 3
#: For a connection to open, and without a byte of an answer.
_CONNECT, _QUIET = timedelta(seconds=5), timedelta(seconds=60)
#: For an answer to be read to its end: a reader may take its time.
_READ = timedelta(days=30)
#: For which a request is tried.
_TRIED = timedelta(seconds=30)
#: For which the keys are used before they are read again; the library asks for them five minutes earlier.
_FRESH = timedelta(minutes=6)
#: Ending of the name of a touch.
_TOUCHED = ".touched"


class S3Streams:
    """A store in one bucket."""

    def __init__(self, settings: S3Settings, *, keep: float = 86_400.0) -> None:
        """`keep`: seconds after the last touch for which a stream stays where nothing removed it.

        Reads the files that the settings name. Raises SettingsError.
        """
        self._settings = settings
        self._where = f"bucket {settings.bucket!r} at {settings.endpoint}"
        self._keep = timedelta(seconds=keep)
        self._said = False
        self._keys = _Keys(settings)
        self._authorities = self._read_authorities()
        self._made = self._store()

    def _read_authorities(self) -> str | None:
        file = self._settings.ca_file
        return None if file is None else secrets.text_in(file, "streams.s3.ca_file")

    @property
    def _bucket(self) -> S3Store:
        """The bucket, over connections that trust the present authorities; the former ones while those are unusable."""
        try:
            if (now := self._read_authorities()) != self._authorities:
                self._authorities = now
                self._made = self._store()
        except SettingsError as error:
            log.warning("the authorities of the bucket cannot be read again", extra={"reason": str(error)})
        return self._made

    def _store(self) -> S3Store:
        settings = self._settings
        options: ClientConfig = {
            "allow_http": settings.endpoint.startswith("http:"),
            "connect_timeout": _CONNECT,
            "read_timeout": _QUIET,
            "timeout": _READ,
        }
        if self._authorities is not None:
            options["root_certificate"] = self._authorities
        try:
            return S3Store(
                settings.bucket,
                prefix=settings.prefix,
                # The service's own address comes before `endpoint`, also where a variable of the environment has it.
                aws_endpoint_url_s3=settings.endpoint,
                region=settings.region,
                # So that no variable of the environment adds to them.
                credential_provider=self._keys,
                virtual_hosted_style_request=False,
                client_options=options,
                retry_config={"retry_timeout": _TRIED},
            )
        except (BaseError, ValueError) as error:
            raise SettingsError("streams.s3", f"cannot be used: {_reason(error, self._settings)}") from None

    async def store(self, stream: str, chunks: AsyncIterable[bytes]) -> int:
        name, size, failure = stored_name(stream), 0, None

        async def counted() -> AsyncIterator[bytes]:
            nonlocal size, failure
            try:
                async for chunk in chunks:
                    size += len(chunk)
                    yield chunk
            except Exception as error:
                failure = error
                raise

        with self._errors(f"data stream {stream} cannot be stored"):
            try:
                # Where the source fails, the parts that the server has are removed. One that it is just taking
                # may stay, because AbortMultipartUpload does not wait for it.
                await obstore.put_async(
                    self._bucket, name, counted(), chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
                )
            except (BaseError, OSError):
                if failure is None:
                    raise
        if failure is not None:
            raise failure
        return size

    async def read(self, stream: str) -> AsyncIterator[bytes]:
        name = stored_name(stream)
        with self._errors(f"data stream {stream} cannot be read"):
            found = await obstore.get_async(self._bucket, name)
            parts = found.stream(min_chunk_size=CHUNK)
        while True:
            with self._errors(f"data stream {stream} cannot be read"):
                try:
                    part = await anext(parts)
                except StopAsyncIteration:
                    return
            # Most are of the least size, but a part may have come whole.
            for first in range(0, len(part), CHUNK):
                yield bytes(part[first : first + CHUNK])

    async def touch(self, stream: str) -> None:
        name = stored_name(stream)
        with self._tidying("a data stream cannot be touched"):
            await obstore.put_async(self._bucket, name + _TOUCHED, b"", use_multipart=False)
            try:
                await obstore.head_async(self._bucket, name)
            except FileNotFoundError:  # it was removed: the mark must not stay
                await obstore.delete_async(self._bucket, name + _TOUCHED)

    async def remove(self, stream: str) -> None:
        name = stored_name(stream)
        with self._tidying("a data stream cannot be removed; it expires"):
            await obstore.delete_async(self._bucket, [name, name + _TOUCHED])

    async def sweep(self) -> int:
        with self._errors("expired data streams cannot be removed"):
            oldest = await self._now() - self._keep
            newest: dict[str, datetime] = {}
            names: dict[str, list[str]] = {}
            foreign = 0
            async for some in obstore.list(self._bucket):
                for found in some:
                    stream = stream_in(found["path"], _TOUCHED)
                    if stream is None:
                        foreign += 1
                        continue
                    newest[stream] = max(found["last_modified"], newest.get(stream, found["last_modified"]))
                    names.setdefault(stream, []).append(found["path"])
            expired = [stream for stream, at in newest.items() if at < oldest]
            for stream in expired:
                await obstore.delete_async(self._bucket, names[stream])
        if foreign and not self._said:
            self._said = True
            log.warning(
                "objects that the relay did not write are left alone", extra={"store": self._where, "objects": foreign}
            )
        return len(expired)

    async def _now(self) -> datetime:
        """Return the time of the server, by whose clock objects have their ages."""
        probe = stored_name(new_id())
        await obstore.put_async(self._bucket, probe, b"", use_multipart=False)
        found = await obstore.head_async(self._bucket, probe)
        await obstore.delete_async(self._bucket, probe)
        return found["last_modified"]

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raise StreamLost with what the server says."""
        try:
            yield
        except (BaseError, OSError) as error:
            raise StreamLost(f"{what} in {self._where}: {_reason(error, self._settings)}") from error

    @contextmanager
    def _tidying(self, what: str) -> Iterator[None]:
        """Log what the server says. What is not there needs nothing."""
        try:
            yield
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            log.warning(what, extra={"store": self._where, "reason": _reason(error, self._settings)})


class _Keys:
    """Reads the keys again every few minutes, so that changed ones need no restart."""

    def __init__(self, settings: S3Settings) -> None:
        """Raises SettingsError."""
        self._settings = settings
        self._known = self._read()
        self._outage = OutageLog(log, "the keys of the bucket", meanwhile="the last ones that were read count")

    def __call__(self) -> S3Credential:
        try:
            self._known = self._read()
        except SettingsError as error:
            self._outage.failed(str(error), time.monotonic())
        else:
            self._outage.over(time.monotonic())
        access, secret_key = self._known
        return {
            "access_key_id": access,
            "secret_access_key": secret_key,
            "expires_at": datetime.now(UTC) + _FRESH,
        }

    def _read(self) -> tuple[str, str]:
        access = secrets.in_file(self._settings.access_key_file, "streams.s3.access_key_file")
        return access, secrets.in_file(self._settings.secret_key_file, "streams.s3.secret_key_file")


#: What rustls calls the faults of a certificate: OpenSSL's code. It has further ones, and may add `Context`.
_CERTIFICATE_FAULTS = {
    "BadSignature": 7,
    "NotValidYet": 9,
    "Expired": 10,
    "UnknownIssuer": 20,
    "Revoked": 23,
    "InvalidPurpose": 26,
    "UnhandledCriticalExtension": 34,
    "NotValidForName": 62,
}


def _reason(error: Exception, settings: S3Settings) -> str:
    """Return the words of the server where it answered, and else those of the library without its own details."""
    text, _, details = str(error).partition("Debug source:")
    if found := re.search(r"InvalidCertificate\(\s*(\w+?)(?:Context)?\b", details):
        code = _CERTIFICATE_FAULTS.get(found[1], 0)
        setting = "streams.s3.ca_file"
        return f"{found[1]}: {certificate_faults.described(code, authority=settings.ca_file, setting=setting)}"
    if found := re.search(r"<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?", text, re.DOTALL):
        text = ": ".join(filter(None, found.groups()))
    return " ".join(text.split())[:300]
