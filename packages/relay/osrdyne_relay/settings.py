"""The settings of a relay node: parsed once, strictly. Durations are seconds as a number or ISO 8601 text.

Secrets are in files, which the settings name. An unknown key, or a value of the wrong kind, is an error that names the
setting.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, model_validator

from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime import addresses
from osrdyne_runtime.door import PATIENCE_SECONDS
from osrdyne_runtime.settings import model, secrets
from osrdyne_runtime.settings.model import StrictModel

#: More than 0 seconds, and 30 days at most.
Seconds = Annotated[model.Seconds, Field(gt=0, le=30 * 86_400)]


class RedisSettings(StrictModel):
    """How a node reaches Redis."""

    #: `redis://host:6379/0`, or `rediss://` for TLS. An address with a password belongs in `url_file`.
    url: str | None = None
    #: File that holds the address.
    url_file: Path | None = None
    #: User of Redis's ACL. Without it, the one of the address.
    user: str | None = None
    password_file: Path | None = None
    #: For TLS: the authorities that are trusted, and a certificate and key of this client.
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    #: Most connections for commands of one node; one more receives pulses.
    connections: int = Field(default=8, ge=1, le=1000)
    #: For a connection to open, and for an answer to come, in seconds.
    connect_timeout: Seconds = 5.0
    answer_timeout: Seconds = 5.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        secrets.check_one(self.url, self.url_file, "redis.url", variable="redis.url")
        # Other mistakes in an address are reported by `address`.
        if self.url is not None and not addresses.problem(self.url, "redis", "rediss") and urlsplit(self.url).password:
            raise ValueError("`url` holds a password: put the address in a file and name it as `url_file`")
        if self.key_file and not self.certificate_file:
            raise ValueError("`key_file` needs `certificate_file`")
        return self

    def files(self) -> list[Path]:
        """Return the files that are read when the connections are made."""
        named = (self.url_file, self.password_file, self.ca_file, self.certificate_file, self.key_file)
        return [file for file in named if file is not None]

    def address(self) -> SplitResult:
        """Return the address in its parts. Reads `url_file`; raises SettingsError."""
        given = secrets.given(self.url, self.url_file, "redis.url")
        wrong = addresses.problem(given, "redis", "rediss")
        if wrong is None and not re.fullmatch(r"/?\d{0,4}", urlsplit(given).path):
            wrong = "has a path that is not the number of a database"
        if wrong is None and urlsplit(given).query:
            wrong = "has parameters behind the database, which are settings beside it"
        if wrong is not None:
            raise SettingsError("redis.url", f"{wrong}; write redis://host:6379/0, or rediss:// for TLS")
        return urlsplit(given)


class Timings(StrictModel):
    """How long things take, in seconds. All nodes of a relay should have the same values."""

    #: Time between two heartbeats of a call, on both sides.
    beat_every: Seconds = 15.0
    #: Silence after which the serving node counts as gone.
    server_gone_after: Seconds = 60.0
    #: Silence after which the calling node counts as gone.
    caller_gone_after: Seconds = 90.0
    #: How long an operation of Redis is tried again.
    retry_for: Seconds = 30.0
    #: Time from an event to the first look for a lost pulse. The time between looks then doubles.
    look_first: Seconds = 1.0
    #: Longest time between two looks.
    look_every: Seconds = 15.0
    #: How long a request waits for a node, unless a call says otherwise.
    pickup_timeout: Seconds = 60.0
    #: How long a collected request waits for another worker, after its own went away.
    hold_for: Seconds = 10.0
    #: How long a response stays in Redis.
    response_stays: Seconds = 1200.0
    #: Time between two sweeps of expired data streams.
    sweep_every: Seconds = 3600.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in ("server_gone_after", "caller_gone_after"):
            if getattr(self, name) < 2 * self.beat_every:
                raise ValueError(f"`{name}` must be at least twice `beat_every`, so that one late beat ends no call")
        if self.response_stays < 4 * max(self.beat_every, self.retry_for):
            raise ValueError("`response_stays` must be at least four times `beat_every` and `retry_for`")
        return self


class S3Settings(StrictModel):
    """A bucket of S3, or of a server that speaks its protocol."""

    #: Address of the server, without the bucket: `https://s3.eu-west-1.amazonaws.com` for example.
    endpoint: str = Field(pattern=r"^https?://[^/\s@?#]+/?$")
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,63}$")
    #: Prefix of the names of all objects. The relay owns what is below it, and removes old objects there.
    prefix: str = Field(default="osrdyne-relay", pattern=r"^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,7}$")
    #: Files that hold the id of the access key, and the secret key.
    access_key_file: Path
    secret_key_file: Path
    #: Authorities that are trusted beside those of the system.
    ca_file: Path | None = None


class StreamSettings(StrictModel):
    """Where data streams are. Without a place, bodies alone can be sent."""

    #: A directory that all nodes share.
    directory: Path | None = None
    s3: S3Settings | None = None
    #: How long a stream stays if nothing removes it.
    keep: Seconds = 86_400.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.directory is not None and self.s3 is not None:
            raise ValueError("give `directory` or `s3`, not both")
        return self


class ServeSettings(StrictModel):
    """How a node is reached over HTTPS: `osrdyne relay serve`."""

    #: Address and port to listen on. Port 0 lets the system choose.
    host: str = "127.0.0.1"
    port: int = Field(default=8044, ge=0, le=65_535)
    #: Who may poll and call; see `http.access`.
    access_file: Path
    #: Certificate and key for TLS. They are read again when they change.
    certificate_file: Path | None = None
    key_file: Path | None = None
    #: Authorities whose certificates clients may show instead of a token.
    client_ca_file: Path | None = None
    #: Whether other machines may connect without TLS: only behind a proxy that has it.
    plain_http: bool = False
    #: Most connections.
    connections: int = Field(default=8192, ge=1, le=1_000_000)
    #: Most connections that have not shown a token or certificate yet.
    strangers: int = Field(default=4096, ge=1, le=1_000_000)
    #: How long a connection may take to show one.
    stranger_timeout: Seconds = PATIENCE_SECONDS
    #: Most polls, calls and requests in hand of one client, and most endpoints, unless the access file says otherwise.
    most: int = Field(default=256, ge=1, le=1_000_000)
    #: Longest wait of one poll.
    longest_poll: Seconds = 60.0
    #: Silence after which the worker of a request counts as gone.
    worker_gone_after: Seconds = 60.0
    #: Time without a poll after which the node no longer listens to an endpoint.
    forget_after: Seconds = 60.0
    #: How long a client may take to send a request, and to take an answer.
    transfer_timeout: Seconds = 30.0
    #: Most bytes of a data stream of a client.
    most_stream_bytes: int = Field(default=10_737_418_240, ge=1, le=80_000_000_000)
    #: Longest pause of a client while it sends or reads a data stream.
    stream_pause: Seconds = 300.0
    #: How long a connection may be idle.
    idle_timeout: Seconds = 75.0
    #: How long requests and calls may go on after the stop.
    grace: Seconds = 30.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.key_file and not self.certificate_file:
            raise ValueError("`key_file` needs `certificate_file`")
        if self.client_ca_file and not self.certificate_file:
            raise ValueError("`client_ca_file` needs `certificate_file`: without TLS, no client shows a certificate")
        return self


class RelaySettings(StrictModel):
    """A node of a relay."""

    redis: RedisSettings
    #: Of all keys and channels. Relays of different prefixes share a Redis and nothing else.
    prefix: str = Field(default="osrdyne-relay", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    #: Most bytes of a request or response in Redis. Larger ones are data streams.
    most_bytes: int = Field(default=1_048_576, ge=1024, le=16_777_216)
    #: Most data that a pulse carries. A larger response is read from Redis.
    pulse_bytes: int = Field(default=16_384, ge=0, le=1_048_576)
    timings: Timings = Timings()
    streams: StreamSettings = StreamSettings()
    #: For a node to which workers and callers connect.
    serve: ServeSettings | None = None

    @classmethod
    def from_mapping(cls, values: object, *, path: str = "relay") -> Self:
        """Parse a mapping, a table of TOML for example. Raises SettingsError, which names the setting."""
        return super().from_mapping(values, path=path)
