"""How an endpoint reads what it takes of a request, does its work in a thread, and answers with what that returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from osrdyne_jobs.http.backend import Backend
from osrdyne_jobs.http.problems import Refusal
from osrdyne_protocol import foreign_json
from osrdyne_runtime.serve.server import body_of

T = TypeVar("T")

BACKEND: web.AppKey[Backend] = web.AppKey("backend", Backend)
#: What runs statements on the database, which block.
THREADS: web.AppKey[ThreadPoolExecutor] = web.AppKey("threads", ThreadPoolExecutor)
#: Most bytes of a request's body: a payload of the largest size in which every character is escaped.
MOST_BODY = 1 << 20
#: Seconds for it to come.
BODY_SECONDS = 30.0


class JobEndpoint(NamedTuple):
    """An endpoint. `run` gets the backend, and a model of what the request gives in this part of it: query or path.

    That of a POST to a collection is its body.
    """

    method: str
    path: str
    run: Callable[..., Any]
    takes: type[BaseModel] | None = None

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a request. Raises Refusal, and what `run` raises."""
        # Every body is read, also one that says nothing: the next request comes behind it.
        body = await _body(request) if self.method == "POST" else b""
        if request.match_info:
            given: Any = dict(request.match_info)
        elif self.method == "POST":
            given = _read(body)
        else:
            given = dict(parse_qsl(request.rel_url.raw_query_string, keep_blank_values=True))
        taken = () if self.takes is None else (_checked(self.takes, given),)
        made = await in_thread(request, partial(self.run, request.app[BACKEND], *taken))
        if made is None:
            return web.Response(status=204)
        creates = self.method == "POST" and not request.match_info
        headers = {"Location": f"{self.path}/{made.id}"} if creates else None
        return web.json_response(to_jsonable_python(made), status=201 if creates else 200, headers=headers)


def in_thread(request: web.Request, work: Callable[[], T]) -> Awaitable[T]:
    """Do what waits for the database, without holding up others."""
    return asyncio.get_running_loop().run_in_executor(request.app[THREADS], work)


def _checked(model: type[BaseModel], given: Any) -> BaseModel:
    """Return what a request gives, as the model has it. Raises Refusal, which names the first field that is wrong."""
    try:
        return model.model_validate(given, from_attributes=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise Refusal(422, f"{field}: {first['msg'].removeprefix('Value error, ')}", field=field) from None


def _read(body: bytes) -> Any:
    if not body:
        raise Refusal(422, "body: Field required", field="body")
    try:
        return foreign_json.read(body, most=MOST_BODY)
    except foreign_json.UnreadableJson as error:
        raise Refusal(422, f"body: {error}", field="body") from None


async def _body(request: web.Request) -> bytes:
    try:
        return await body_of(request, BODY_SECONDS)
    except web.HTTPRequestTimeout:
        raise Refusal(408, f"the body did not come within {BODY_SECONDS:g} s", close=True) from None
    except web.HTTPRequestEntityTooLarge:
        raise Refusal(413, f"a request has at most {MOST_BODY} bytes", close=True) from None
