"""The application: API, page and metrics behind the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from sqlalchemy import Engine

from osrdyne_jobs.client import Caster
from osrdyne_jobs.http import api, guard, metrics, page, problems
from osrdyne_jobs.http.backend import Backend
from osrdyne_jobs.job_types import JobType

_ABOUT = "List, show, create, redo, cancel and delete jobs. Times are those of the database's clock."


def create_app(
    engine: Engine,
    *,
    token: guard.Token,
    types: Iterable[JobType] = (),
    client: Caster | None = None,
    let_in: Callable[[object], None] | None = None,
) -> FastAPI:
    """Return the application for a server of your own; `serve` brings one.

    `engine`: of `osrdyne_jobs.engine_for`; it stays the caller's.
    `token`: what a request must bring as a bearer token, or a function that returns it for each. None: only requests to
    localhost are answered; listen on a loopback address only.
    `types`: those of which jobs can be created.
    `client`: an open client of the pool, with which new jobs are cast. Without one, redo casts them.
    `let_in`: is told the host and port from which a request with the token came.

    Raises CannotServe for a token that is too short, or cannot be sent.
    """
    guard.check_token(token)
    app = FastAPI(
        title="osrdyne jobs",
        description=_ABOUT,
        version=version("osrdyne-jobs"),
        docs_url=None,  # these two load their scripts from another site
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.backend = Backend(engine, types, client)
    app.state.metrics = metrics.registry(app.state.backend.reading)
    app.add_middleware(guard.AccessGuard, token=token, let_in=let_in)
    problems.install(app)
    # The guard checks the token; this only has the description say so.
    described = [Depends(HTTPBearer(auto_error=False))] if token else []
    app.include_router(api.router, dependencies=described)
    app.include_router(page.router)
    app.add_api_route("/healthz", _healthz, include_in_schema=False)
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    return app


async def _healthz() -> Response:
    return PlainTextResponse("ok\n")


def _metrics(request: Request) -> Response:
    return Response(metrics.render(request.app.state.metrics), headers={"content-type": metrics.CONTENT_TYPE})
