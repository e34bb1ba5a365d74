"""The environment that a driver gives to each worker: six variables, one of them a credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from osrdyne_protocol.errors import MissingVariable

WORKER_ID = "WORKER_ID"
WORKER_KEY = "WORKER_KEY"
WORKER_POOL = "WORKER_POOL"
WORKER_REQUESTS_QUEUE = "WORKER_REQUESTS_QUEUE"
WORKER_ACTIVITY_EXCHANGE = "WORKER_ACTIVITY_EXCHANGE"
WORKER_AMQP_URI = "WORKER_AMQP_URI"


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """What a worker knows at its start. The URI is a credential: it is left out of `repr`."""

    #: Unique for each replica of a group.
    id: str
    key: str
    pool: str
    requests_queue: str
    activity_exchange: str
    amqp_uri: str = field(repr=False)

    def to_environ(self) -> dict[str, str]:
        """Return the six variables, ready for a process, a unit or a container."""
        return {
            WORKER_ID: self.id,
            WORKER_KEY: self.key,
            WORKER_POOL: self.pool,
            WORKER_REQUESTS_QUEUE: self.requests_queue,
            WORKER_ACTIVITY_EXCHANGE: self.activity_exchange,
            WORKER_AMQP_URI: self.amqp_uri,
        }

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkerEnvironment:
        """Read the six variables. Raises `MissingVariable` that names every one that is absent."""
        names = (
            WORKER_ID,
            WORKER_KEY,
            WORKER_POOL,
            WORKER_REQUESTS_QUEUE,
            WORKER_ACTIVITY_EXCHANGE,
            WORKER_AMQP_URI,
        )
        missing = [name for name in names if name not in environ]
        if missing:
            raise MissingVariable(
                f"{', '.join(missing)} not set: a worker is started by the daemon's driver, "
                "or by hand with all six WORKER_* variables"
            )
        return cls(*(environ[name] for name in names))
