"""Turns errors into HTTP responses: JSON with a sentence that says what to do. No traceback, address or password."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from osrdyne_jobs.database.engines import reason
from osrdyne_jobs.errors import InvalidJob, JobError, NoSchema, NotRegistered, UnknownJob, WrongState
from osrdyne_runtime.outages import OutageLog

_AWAY = (
    "the database is away or does not do what it is asked: ask again once it answers; the server's log has the reason"
)
_SLOW = "the database did not answer in time: ask for less, for example jobs of one state, or ask again later"
_BROKEN = "this is an error of the server; its log has the details"
#: What is logged while the database does not answer.
OUTAGE: web.AppKey[OutageLog] = web.AppKey("outage", OutageLog)
#: The HTTP status of the response to each error.
_STATUS_OF: Mapping[type[JobError], int] = {
    UnknownJob: 404,
    WrongState: 409,
    NoSchema: 503,
    NotRegistered: 503,
}
#: PostgreSQL's codes (SQLSTATE) for a statement that took too long, and for a table that is not there.
_TIMEOUT, _NO_TABLE = "57014", "42P01"


class Problem(BaseModel):
    """Why something was not done."""

    error: str = Field(description="One sentence: what is wrong, and what to do.")
    field: str | None = Field(None, description="The part of the request that is wrong, as `payload.year`.")


class Refusal(Exception):
    """Why a request is refused. `close`: the connection is closed after the response."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.field, self.headers, self.close = status, error, field, headers, close


def problem_of(request: web.Request, error: Exception) -> web.Response:
    """Return the response to an error."""
    match error:
        case Refusal():
            answer = _problem(error.status, error.error, field=error.field, headers=error.headers)
            if error.close:
                answer.force_close()
            return answer
        case NotRegistered() if isinstance(error.__cause__, SQLAlchemyError):
            return _database_problem(request, error.__cause__)  # its own text has the database's words
        case InvalidJob():
            return _problem(422, str(error), field=error.field)
        case JobError():
            status = next((status for kind, status in _STATUS_OF.items() if isinstance(error, kind)), 500)
            return _problem(status, str(error))
        case SQLAlchemyError():
            return _database_problem(request, error)
        case web.HTTPException():
            return _routing_problem(request, error)
    return _problem(500, _BROKEN)


def _problem(
    status: int, error: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.json_response(Problem(error=error, field=field).model_dump(), status=status, headers=headers)


def _database_problem(request: web.Request, error: SQLAlchemyError) -> web.Response:
    cause = error.orig if isinstance(error, DBAPIError) else None
    code = getattr(cause, "sqlstate", None)
    if code == _NO_TABLE or "no such table" in str(cause):
        return _problem(503, str(NoSchema()))
    request.app[OUTAGE].failed(reason(error), asyncio.get_running_loop().time())
    return _problem(503, _SLOW if code == _TIMEOUT else _AWAY)


def _routing_problem(request: web.Request, error: web.HTTPException) -> web.Response:
    texts = {
        404: f"there is nothing at {request.path}; /openapi.json has what there is",
        405: f"{request.method} is not possible at {request.path}; /openapi.json has what is",
    }
    allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    return _problem(error.status, texts.get(error.status, error.reason), headers=allowed)
