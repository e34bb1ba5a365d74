"""An engine that does not answer is not one that refuses: only a refusal says something about a key's workers."""

from __future__ import annotations

import socket

import pytest

from osrdyne.drivers.docker.engine import Conflict, Engine
from osrdyne.drivers.kubernetes.refusals import refusal
from osrdyne.drivers.systemd.bus import BusError
from osrdyne.errors import DriverError, EngineAway, is_away


def after(cause: Exception) -> DriverError:
    """Return the error that a driver raises because of another."""
    error = DriverError(f"cannot start: {cause}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        EngineAway("no answer"),
        BusError("the bus does not answer"),
        refusal("start", 503, ""),
        refusal("start", 429, ""),
    ],
)
def test_an_engine_that_does_not_answer_is_away_also_where_the_driver_says_more(error: Exception) -> None:
    assert is_away(error)
    assert is_away(after(after(error)))


@pytest.mark.parametrize(
    "error",
    [
        DriverError("no such unit"),
        BusError("no such unit", "org.freedesktop.systemd1.NoSuchUnit"),
        refusal("start", 403, "exceeded quota"),
        Conflict("the name is taken"),
        ValueError("a bug"),
    ],
)
def test_an_engine_that_refuses_is_not_away(error: Exception) -> None:
    assert not is_away(error)
    assert not is_away(after(error))


async def test_a_docker_engine_that_is_not_there_is_away() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(DriverError, match="cannot be reached") as caught:
            await Engine(f"tcp://127.0.0.1:{free.getsockname()[1]}").start("any")
    assert is_away(caught.value)
