"""The page for people: three files, which hold no data. The page asks the API for all that it shows."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Response

_FILES = resources.files("osrdyne_jobs.http") / "static"
_HTML, _SCRIPT, _STYLE = ((_FILES / name).read_bytes() for name in ("index.html", "page.js", "page.css"))

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> Response:
    """Return the page."""
    return Response(_HTML, media_type="text/html")


@router.get("/page.js")
async def script() -> Response:
    """Return what it runs."""
    return Response(_SCRIPT, media_type="text/javascript")


@router.get("/page.css")
async def style() -> Response:
    """Return how it looks."""
    return Response(_STYLE, media_type="text/css")
