"""Errors as answers: JSON with one sentence, which says what to do; never a traceback, an address or a password."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from starlette.exceptions import HTTPException

from osrdyne_jobs.errors import InvalidJob, JobError, NoSchema, NotRegistered, UnknownJob, WrongState
from osrdyne_runtime import log_lines

logger = log_lines.logger(__name__)

_AWAY = (
    "the database is away or does not do what it is asked: ask again once it answers; the server's log has the reason"
)
_SLOW = "the database did not answer in time: ask for less, for example jobs of one state, or ask again later"
_BROKEN = "this is an error of the server; its log has the details"
#: The status of an answer to each error.
_STATUS: Mapping[type[JobError], int] = {
    InvalidJob: 422,
    UnknownJob: 404,
    WrongState: 409,
    NoSchema: 503,
    NotRegistered: 503,
}
#: What PostgreSQL calls a statement that took too long, and a table that is not there.
_TIMEOUT, _NO_TABLE = "57014", "42P01"


class Problem(BaseModel):
    """Why something was not done."""

    error: str = Field(description="One sentence: what is wrong, and what to do.")
    field: str | None = Field(None, description="The part of the request that is wrong, as `payload.year`.")


def answer(
    status: int, error: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error as an answer."""
    return JSONResponse(Problem(error=error, field=field).model_dump(), status, dict(headers or {}))


def install(app: FastAPI) -> None:
    """Have an application answer all errors this way."""
    app.add_exception_handler(JobError, _of_a_job)
    app.add_exception_handler(SQLAlchemyError, _of_the_database)
    app.add_exception_handler(RequestValidationError, _of_the_request)
    app.add_exception_handler(HTTPException, _of_the_route)
    app.add_exception_handler(Exception, _unexpected)


def _of_a_job(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, NotRegistered) and error.__cause__ is not None:
        return _of_the_database(request, error.__cause__)  # its own text has the database's words
    if isinstance(error, InvalidJob):
        return answer(422, str(error), field=error.field)
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return answer(status, str(error))


def _of_the_database(_: Request, error: BaseException) -> JSONResponse:
    cause = error.orig if isinstance(error, DBAPIError) else None
    state = getattr(cause, "sqlstate", None)
    if state == _NO_TABLE or "no such table" in str(cause):
        return answer(503, str(NoSchema()))
    logger.warning("the database did not answer", extra={"reason": str(cause or error).strip().partition("\n")[0]})
    return answer(503, _SLOW if state == _TIMEOUT else _AWAY)


def _of_the_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    if first["type"] == "json_invalid":
        return answer(422, f"body: {first['ctx']['error']}", field="body")
    return answer(422, f"{field}: {first['msg'].removeprefix('Value error, ')}", field=field)


def _of_the_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    texts = {
        404: f"there is nothing at {request.url.path}; /openapi.json has what there is",
        405: f"{request.method} is not possible at {request.url.path}; /openapi.json has what is",
        400: "the body cannot be read as JSON",
    }
    text = texts.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return answer(error.status_code, text, headers=error.headers)


def _unexpected(_: Request, __: Exception) -> JSONResponse:
    return answer(500, _BROKEN)  # which the server logs, with the error
