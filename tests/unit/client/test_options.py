"""Each option of the client and of the worker library is listed once, and an unknown one is a TypeError."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
import re
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_amqp.lanes import GIVE_UP_SECONDS
from osrdyne_calls.slots import MOST_SLOTS
from osrdyne_client import AsyncClient, Client
from osrdyne_client.dispatcher import LONGEST_PAUSE_SECONDS, ClientOptions
from osrdyne_worker import Request, WorkerEnvironment, WorkerOptions, run, serve

#: A name that no option has. As a mapping, because a type checker refuses it in a call.
UNKNOWN: dict[str, Any] = {"slotz": 3}


def echo(request: Request) -> bytes:
    return request.body


def names(options: type) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]


def test_both_faces_of_the_client_have_one_constructor_with_all_options() -> None:
    assert "__init__" not in vars(Client)
    assert "__init__" not in vars(AsyncClient)
    parameters = inspect.signature(AsyncClient).parameters.values()
    assert [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY] == names(
        ClientOptions
    )
    # The defaults are there, and nowhere else
    assert all(field.default is dataclasses.MISSING for field in dataclasses.fields(ClientOptions))


def test_the_docs_have_each_option_of_the_client() -> None:
    page = Path(steps.ROOT, "docs/howto/client.md").read_text().split("## Options\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(names(ClientOptions))


def test_the_docs_have_the_defaults_and_the_limits_of_the_client() -> None:
    page = Path(steps.ROOT, "docs/howto/client.md").read_text()
    default = {name: parameter.default for name, parameter in inspect.signature(AsyncClient).parameters.items()}

    assert f"| `slots` | {default['slots']} | most calls in flight, up to {MOST_SLOTS:,}." in page
    assert f"| `timeout` | {default['timeout']:g} s |" in page
    assert default["max_body"] == (16 * 1024 - 64) * 1024
    assert "| `max_body` | 16 MiB less 64 KiB |" in page
    assert f'| `reply` | `"{default["reply"]}"` |' in page
    for name in ("confirm", "resend"):
        assert f"| `{name}` | {'on' if default[name] else 'off'} |" in page
    assert f"growing pauses of up to {LONGEST_PAUSE_SECONDS:g} seconds" in page
    assert f"gives no answer within {GIVE_UP_SECONDS:g} seconds" in page


@pytest.mark.parametrize("face", [AsyncClient, Client])
def test_an_unknown_option_of_the_client_is_a_type_error(face: type[AsyncClient] | type[Client]) -> None:
    with pytest.raises(TypeError, match="slotz"):
        face("amqp://user:secret@nowhere", "core", **UNKNOWN)


def test_the_options_of_a_client_may_be_named_with_its_address_and_pool() -> None:
    for face in (AsyncClient, Client):
        assert (
            face(uri="amqp://user:secret@nowhere", pool="core", slots=3, timeout=1.5, reply="direct").slots_taken == 0
        )


def test_a_worker_has_its_defaults_from_one_place() -> None:
    options = WorkerOptions()
    assert (options.at_once, options.alive_interval, options.grace) == (1, 10.0, 30.0)
    assert (WorkerOptions(threads=0).at_once, WorkerOptions(threads=4).at_once) == (1, 4)
    assert WorkerOptions(threads=4, prefetch=2).at_once == 2


@pytest.mark.parametrize(
    "given",
    [
        *({"prefetch": value} for value in (0, -1, 65_536, math.nan)),
        *({"threads": value} for value in (-1, math.nan)),
        *({"grace": value} for value in (-1, math.nan)),
        *({"alive_interval": value} for value in (0, -1, math.nan)),
        *({"max_body": value} for value in (-1, math.nan)),
    ],
)
def test_options_that_no_worker_can_have_are_refused_before_it_connects(given: dict[str, Any]) -> None:
    environment = WorkerEnvironment("id", "key", "core", "core-req-key", "core-activity-xchg", "amqp://nowhere")
    with pytest.raises(ValueError, match=rf"{next(iter(given))}={next(iter(given.values()))}.*: give"):
        asyncio.run(serve(echo, environment, asyncio.Event(), **given))


def test_an_unknown_option_of_a_worker_is_a_type_error_before_anything_is_done() -> None:
    environment = WorkerEnvironment("id", "key", "core", "core-req-key", "core-activity-xchg", "amqp://nowhere")
    with pytest.raises(TypeError, match="slotz"):
        run(echo, **UNKNOWN)
    with pytest.raises(TypeError, match="slotz"):
        asyncio.run(serve(echo, environment, asyncio.Event(), **UNKNOWN))
    with pytest.raises(TypeError, match="positional"):
        run(echo, 4)  # type: ignore[call-arg]
