"""Serves the application on an address until it is stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

from sqlalchemy import Engine

from osrdyne_jobs.client import Caster
from osrdyne_jobs.errors import CannotServe
from osrdyne_jobs.http.app import create_app
from osrdyne_jobs.http.endpoints import BACKEND
from osrdyne_jobs.http.guard import Token
from osrdyne_jobs.job_types import JobType
from osrdyne_runtime import log_lines
from osrdyne_runtime.door import Door
from osrdyne_runtime.serve.listening import CannotListen, address, listen
from osrdyne_runtime.serve.server import served

log = log_lines.logger(__name__)

#: Most connections at once.
_CONNECTIONS = 512
#: Seconds between two looks at whether to stop.
_LOOK_SECONDS = 0.1


def serve(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int,
    token: Token,
    types: Iterable[JobType] = (),
    client: Caster | None = None,
    stop: threading.Event,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Serve the administration until `stop` is set; may be called from any thread that runs no loop.

    `port`: 0 lets the system choose one. `listening` gets the address of the page once it answers.
    `engine`, `token`, `types`, `client`: as `create_app`.

    Raises CannotServe where the address cannot be listened on, where no token guards an address other than loopback,
    and for a token that is too short or cannot be sent.
    """
    door = Door(most=_CONNECTIONS)

    async def run() -> None:
        app = create_app(engine, token=token, types=types, client=client, let_in=door.let_in)
        try:
            listeners = listen(host, port, others_need="set a token" if token is None else None)
        except CannotListen as error:
            raise CannotServe(str(error)) from error
        where = f"{address(listeners[0])}/"
        try:
            async with served(app, listeners, door):
                log.info("the administration of jobs is served", extra={"address": where})
                if listening is not None:
                    await asyncio.to_thread(listening, where)  # it may ask the server
                while not stop.is_set():  # noqa: ASYNC110 - set in any thread
                    await asyncio.sleep(_LOOK_SECONDS)
        finally:
            app[BACKEND].jobs.close()

    asyncio.run(run())
