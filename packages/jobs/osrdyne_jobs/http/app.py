"""The application: API, page and metrics behind the guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs.client import Caster
from osrdyne_jobs.database.engines import place, reason
from osrdyne_jobs.errors import JobError
from osrdyne_jobs.http import api, guard, metrics, page, problems
from osrdyne_jobs.http.backend import Backend
from osrdyne_jobs.http.endpoints import BACKEND, MOST_BODY, THREADS, in_thread
from osrdyne_jobs.job_types import JobType
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.serve import answers
from osrdyne_runtime.serve.server import entrance

log = log_lines.logger(__name__)

#: Most requests that wait for the database side by side.
_THREADS = 40
#: Seconds between two looks at the database.
_LOOK_SECONDS = 5.0
_METRICS: web.AppKey[CollectorRegistry] = web.AppKey("metrics", CollectorRegistry)


def create_app(
    engine: Engine,
    *,
    token: guard.Token,
    types: Iterable[JobType] = (),
    client: Caster | None = None,
    let_in: Callable[[object], None] | None = None,
) -> web.Application:
    """Return the application of aiohttp for a server of your own; `serve` brings one.

    `engine`: of `osrdyne_jobs.engine_for`; it stays the caller's.
    `token`: what a request must bring as a bearer token, or a function that returns it for each. None: only requests to
    localhost are answered; listen on a loopback address only.
    `types`: those of which jobs can be created.
    `client`: an open client of the pool, with which new jobs are cast. Without one, redo casts them.
    `let_in`: called with the host and port from which a request with the token came.

    Raises CannotServe for a token that is too short, or cannot be sent.
    """
    guard.check_token(token)
    middleware = entrance(let_in, guard.TokenGuard(token).is_known, problems.problem_of)
    app = web.Application(middlewares=[middleware], client_max_size=MOST_BODY)
    answers.add_headers(app, guard.HEADERS)
    app[BACKEND] = Backend(engine, types, client)
    app[THREADS] = ThreadPoolExecutor(_THREADS, thread_name_prefix="osrdyne-jobs-http")
    app[_METRICS] = metrics.registry(app[BACKEND].reading)
    where = place(engine)
    app[problems.OUTAGE] = OutageLog(log, "the database", meanwhile="requests are answered with 503", database=where)
    app.cleanup_ctx.append(_watching)
    app.on_cleanup.append(_end_threads)
    for endpoint in api.ENDPOINTS:
        app.router.add_route(endpoint.method, endpoint.path, endpoint.answer)
    gets = {"/healthz": answers.alive, "/metrics": _metrics, **page.FILES}
    app.add_routes([web.get(path, answer, allow_head=False) for path, answer in gets.items()])
    return app


async def _metrics(request: web.Request) -> web.Response:
    return await in_thread(request, partial(answers.metrics, request.app[_METRICS]))


async def _watching(app: web.Application) -> AsyncIterator[None]:
    watching = asyncio.create_task(_watch(app), name="osrdyne jobs: the database")
    yield
    watching.cancel()
    await asyncio.wait([watching])


async def _watch(app: web.Application) -> None:
    """Look at the database until cancelled: so the log has each outage from its begin to its end."""
    loop, outage = asyncio.get_running_loop(), app[problems.OUTAGE]
    while True:
        try:
            await loop.run_in_executor(app[THREADS], app[BACKEND].look)
        except (SQLAlchemyError, JobError) as error:
            outage.failed(reason(error) if isinstance(error, SQLAlchemyError) else str(error), loop.time())
        else:
            outage.over(loop.time())
        await asyncio.sleep(_LOOK_SECONDS)


async def _end_threads(app: web.Application) -> None:
    # A statement that is under way has a bound of its own.
    app[THREADS].shutdown(wait=False, cancel_futures=True)
