"""What every server over HTTP does, whatever it serves: headers, strangers, errors of its own, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import pytest
from aiohttp import web

from osrdyne_runtime.door import Door
from osrdyne_runtime.serve import answers, server
from osrdyne_runtime.serve.listening import listen
from testbed.waiting import PATIENCE_SECONDS


def problem(_: web.Request, error: Exception) -> web.Response:
    status = error.status if isinstance(error, web.HTTPException) else 500
    return web.Response(status=status, text="a problem\n")


async def broken(_: web.Request) -> web.Response:
    raise RuntimeError("the inside")


async def gone(_: web.Request) -> web.Response:
    raise ConnectionResetError


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    door = Door(most=8)
    app = web.Application(middlewares=[server.entrance(door.let_in, lambda it: "Known" in it.headers, problem)])
    answers.add_headers(app, {"X-More": "yes"})
    app.add_routes([web.get("/alive", answers.alive), web.get("/broken", broken), web.get("/gone", gone)])
    listeners = listen("127.0.0.1", 0)
    async with server.served(app, listeners, door):
        yield listeners[0].getsockname()[1]


async def ask(port: int, request: str) -> str:
    """Return all that is answered until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(request.replace("\n", "\r\n").encode("latin-1"))
        return (await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)).decode()


async def test_every_answer_has_the_headers_and_that_to_a_stranger_ends_its_connection() -> None:
    async with serving() as port:
        for path, status in (("/alive", 200), ("/nothing", 404), ("/broken", 500)):
            said = await ask(port, f"GET {path} HTTP/1.1\nHost: x\n\n")
            assert said.startswith(f"HTTP/1.1 {status} ")
            assert "\r\nConnection: close\r\n" in said
            for name, value in {**answers.HEADERS, "X-More": "yes"}.items():
                assert f"{name}: {value}\r\n" in said


async def test_a_client_that_is_known_keeps_its_connection() -> None:
    async with serving() as port:
        two = "GET /alive HTTP/1.1\nHost: x\nKnown: yes\n\n" * 2 + "GET /alive HTTP/1.1\nHost: x\n\n"
        assert (await ask(port, two)).count("HTTP/1.1 200 ") == 3


async def test_a_client_that_is_connected_at_the_end_gets_one_more_answer() -> None:
    server_context = serving()
    port = await server_context.__aenter__()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = b"GET /alive HTTP/1.1\r\nHost: x\r\nKnown: yes\r\n\r\n"
    with closing(writer):
        writer.write(request)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_SECONDS)
        ending = asyncio.create_task(server_context.__aexit__(None, None, None))
        await refused(port)
        writer.write(request)
        said = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
    await ending
    assert b"HTTP/1.1 200 " in said
    assert b"\r\nConnection: close\r\n" in said


async def refused(port: int) -> None:
    """Wait until the server takes no more connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def warned(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Warnings and errors, but for those of asyncio, which says on a busy machine that a step was slow."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING and record.name != "asyncio"]


async def test_only_errors_of_our_own_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as port:
        await ask(port, "GET /gone HTTP/1.1\nHost: x\nConnection: close\n\n")
        await ask(port, "GET / no HTTP\n\n")
        assert warned(caplog) == []
        assert "the inside" not in await ask(port, "GET /broken HTTP/1.1\nHost: x\n\n")
    (logged,) = warned(caplog)
    assert logged.exc_info is not None
    assert str(logged.exc_info[1]) == "the inside"


@pytest.mark.parametrize("request_line", ["GET /\xe9 HTTP/1.1\nHost: x", "GET / HTTP/1.1\nHost: x\nX: \xe9"])
async def test_what_is_not_text_is_refused_before_any_handler(request_line: str) -> None:
    async with serving() as port:
        assert (await ask(port, f"{request_line}\nConnection: close\n\n")).partition(" ")[2].startswith("400 ")


async def test_a_port_that_was_served_is_free_afterwards() -> None:
    async with serving() as port:
        pass
    for listener in listen("127.0.0.1", port):
        listener.close()
