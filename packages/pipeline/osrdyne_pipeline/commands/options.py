"""The options that every command has."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from osrdyne_pipeline import places
from osrdyne_pipeline.commands.starting import ENGINES
from osrdyne_pipeline.report.content import KEY_PLACE
from osrdyne_protocol.errors import ProtocolError
from osrdyne_protocol.names import check_pool_name

_MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)


def _pool(name: str) -> str:
    try:
        return check_pool_name(name)
    except ProtocolError as error:
        raise typer.BadParameter(str(error)) from None


def memory(text: str) -> str:
    """Return a size. Raises `BadParameter`."""
    if not _MEMORY.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is not a size such as 512m or 4g")
    return text


def moment(text: str) -> datetime:
    """Return a time, in UTC where it does not say otherwise. Raises `BadParameter`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time such as 2020-01-01 or 2020-01-01T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _engine(word: str) -> str:
    if word not in ENGINES:
        raise typer.BadParameter(f"{word!r} is not an engine; give {', '.join(ENGINES)}")
    return word


def path(place: Path | None) -> Path | None:
    """Return a path. Raises `BadParameter` for an address, as of an object store."""
    if place is not None and (wrong := places.problem(place)):
        raise typer.BadParameter(wrong)
    return place


def _lake(place: str) -> str:
    if wrong := places.lake_problem(place):
        raise typer.BadParameter(wrong)
    return place


def link_parts(link: str) -> tuple[str, str]:
    """Return name and address of a link."""
    name, _, address = link.partition("=")
    return name, address


def _links(links: list[str] | None) -> list[str] | None:
    for name, address in map(link_parts, links or ()):
        if not name or not address.startswith(("http://", "https://")) or KEY_PLACE not in address:
            raise typer.BadParameter(f"{name}={address} is not a link such as logs=https://logs.example/?q={KEY_PLACE}")
    return links


def _price(number: float | None) -> float | None:
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a price")
    return number


Pool = Annotated[
    str, typer.Option(envvar="OSRDYNE_PIPELINE_POOL", callback=_pool, help="Name of the pool.", metavar="NAME")
]
Lake = Annotated[
    str,
    typer.Option(
        envvar="OSRDYNE_PIPELINE_LAKE",
        callback=_lake,
        help="Where the tables are: a folder, which the machines of a cluster share, or s3://BUCKET/PREFIX.",
        metavar="PLACE",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        envvar="OSRDYNE_PIPELINE_MASTER",
        help="Spark master, such as spark://host:7077; without, local[*], or what spark-submit says.",
        metavar="ADDRESS",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        envvar="OSRDYNE_PIPELINE_ENGINE",
        callback=_engine,
        help="What makes the tables: duckdb needs no Java; spark is for many events; auto chooses by their number.",
        metavar="auto|duckdb|spark",
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        envvar="OSRDYNE_PIPELINE_MEMORY",
        callback=memory,
        help="Memory of the engine here; more data needs more time, not more of it.",
        metavar="SIZE",
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        envvar="OSRDYNE_PIPELINE_PRICE",
        callback=_price,
        min=0,
        metavar="NUMBER",
        help="Price of an hour of a worker.",
    ),
]
Links = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        envvar="OSRDYNE_PIPELINE_LINKS",
        callback=_links,
        metavar="NAME=ADDRESS",
        help="What else has more of a key, as logs, with {key} in its address; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON document.")]

#: Where tables are unless an option says otherwise.
DEFAULT_LAKE = "lake"
#: The memory of an engine on one machine, unless an option says otherwise.
DEFAULT_MEMORY = "2g"
