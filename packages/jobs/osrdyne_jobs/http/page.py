"""Files: the page for people, which asks the API for all that it shows, and the description of the API."""

from __future__ import annotations

from importlib import resources

from aiohttp import web
from aiohttp.typedefs import Handler

_FOLDER = resources.files("osrdyne_jobs.http") / "static"


def _file(name: str, kind: str) -> Handler:
    content = (_FOLDER / name).read_bytes()

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return give


#: By their paths.
FILES = {
    "/": _file("index.html", "text/html"),
    "/page.js": _file("page.js", "text/javascript"),
    "/page.css": _file("page.css", "text/css"),
    "/openapi.json": _file("openapi.json", "application/json"),
}
