"""Bodies of requests: JSON of strangers, which FastAPI would take with all that Python's reader takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from osrdyne_jobs.http.guard import MOST_BODY
from osrdyne_protocol import foreign_json


class _Foreign(Request):
    async def json(self) -> Any:
        try:
            return foreign_json.read(await self.body(), most=MOST_BODY)
        except foreign_json.UnreadableJson as error:
            # What FastAPI makes a 422 of: it knows no other error of a reader.
            raise json.JSONDecodeError(str(error), "", 0) from None


class ForeignRoute(APIRoute):
    """A route that reads the body of a request by `foreign_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            return await handle(_Foreign(request.scope, request.receive))

        return handled
