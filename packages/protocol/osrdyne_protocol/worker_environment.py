"""The environment that a driver gives to each worker: six variables, one of them a credential, and optional ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from osrdyne_protocol.errors import MissingVariable

WORKER_ID = "WORKER_ID"
WORKER_KEY = "WORKER_KEY"
WORKER_POOL = "WORKER_POOL"
WORKER_REQUESTS_QUEUE = "WORKER_REQUESTS_QUEUE"
WORKER_ACTIVITY_EXCHANGE = "WORKER_ACTIVITY_EXCHANGE"
WORKER_AMQP_URI = "WORKER_AMQP_URI"
WORKER_AMQP_URI_FILE = "WORKER_AMQP_URI_FILE"
WORKER_CONSUMER_TIMEOUT = "WORKER_CONSUMER_TIMEOUT"

#: Variables that only a driver sets: a template must not.
VARIABLES = frozenset(
    {
        WORKER_ID,
        WORKER_KEY,
        WORKER_POOL,
        WORKER_REQUESTS_QUEUE,
        WORKER_ACTIVITY_EXCHANGE,
        WORKER_AMQP_URI,
        WORKER_AMQP_URI_FILE,
        WORKER_CONSUMER_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The information that a worker gets at its start. The URI is a credential: it is left out of `repr`."""

    #: Unique for each replica of a group.
    id: str
    key: str
    pool: str
    requests_queue: str
    activity_exchange: str
    #: Empty where the driver has nowhere to put a credential; the address is then in the file alone.
    amqp_uri: str = field(repr=False)
    #: File with the present address, if the worker may read it: a changed password then needs no new worker. None where
    #: the driver has no such file.
    amqp_uri_file: str | None = None
    #: How long this worker may hold one request before the broker takes it back, in milliseconds. None where the driver
    #: does not say.
    consumer_timeout_ms: int | None = field(default=None, kw_only=True)

    def to_environ(self) -> dict[str, str]:
        """Return the variables, ready for a process, a unit or a container."""
        optional = {
            WORKER_AMQP_URI: None if self.amqp_uri_file and not self.amqp_uri else self.amqp_uri,
            WORKER_AMQP_URI_FILE: self.amqp_uri_file,
            WORKER_CONSUMER_TIMEOUT: None if self.consumer_timeout_ms is None else str(self.consumer_timeout_ms),
        }
        return {
            **{name: value for name, value in optional.items() if value is not None},
            WORKER_ID: self.id,
            WORKER_KEY: self.key,
            WORKER_POOL: self.pool,
            WORKER_REQUESTS_QUEUE: self.requests_queue,
            WORKER_ACTIVITY_EXCHANGE: self.activity_exchange,
        }

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkerEnvironment:
        """Read the six variables. Raises `MissingVariable` that names every one that is absent.

        The address may be absent where WORKER_AMQP_URI_FILE says which file has it.
        """
        names = (
            WORKER_ID,
            WORKER_KEY,
            WORKER_POOL,
            WORKER_REQUESTS_QUEUE,
            WORKER_ACTIVITY_EXCHANGE,
            WORKER_AMQP_URI,
        )
        if environ.get(WORKER_AMQP_URI_FILE):
            environ = {WORKER_AMQP_URI: "", **environ}
        missing = [name for name in names if name not in environ]
        if missing:
            raise MissingVariable(
                f"{', '.join(missing)} not set: a worker is started by the daemon's driver, "
                "or by hand with all six WORKER_* variables"
            )
        timeout = environ.get(WORKER_CONSUMER_TIMEOUT, "")
        return replace(
            cls(*(environ[name] for name in names)),
            amqp_uri_file=environ.get(WORKER_AMQP_URI_FILE),
            # An invalid number is ignored: a worker can work without it.
            consumer_timeout_ms=int(timeout) if timeout.isascii() and timeout.isdigit() and int(timeout) else None,
        )
