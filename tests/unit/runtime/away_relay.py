"""Programs of the relay that are started while Redis or their node is away. Each is a stand-in, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from osrdyne_relay import Relay, RelaySettings, wire
from osrdyne_relay.client.asynchronous import Session, Socket
from osrdyne_relay.errors import RedisRefused
from osrdyne_relay.http import server
from osrdyne_relay.redis.port import Away, Command, Hear, RedisPort, Subscriber
from osrdyne_relay.worker import RelayWorker
from tests.unit.runtime.away_at_start import AFTER_SECONDS, AWAY_SECONDS, PLACE, Rig, WaitingProgram


def is_away() -> bool:
    return asyncio.get_running_loop().time() < AWAY_SECONDS


class LateSubscriber(Subscriber):
    """Begins subscriptions once Redis is there."""

    def __init__(self, error: Exception, hear: Hear) -> None:
        self._error, self._hear = error, hear

    async def subscribe(self, *channels: str) -> None:
        if is_away():
            raise self._error
        for channel in channels:
            self._hear(channel, None)

    async def unsubscribe(self, *channels: str) -> None:
        """Nothing is sent."""

    async def receive(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """There is nothing to end."""


class LateRedis(RedisPort):
    """Answers pings once it is there."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, *commands: Command) -> list[Any]:
        if is_away():
            raise self._error
        return [b"PONG" for _ in commands]

    def subscriber(self, hear: Hear) -> Subscriber:
        return LateSubscriber(self._error, hear)

    async def close(self) -> None:
        """There is nothing to end."""


async def serve(error: Exception, rig: Rig) -> None:
    """Serve a node."""
    rig.patch.setattr(server, "Relay", partial(Relay, redis=LateRedis(error)))
    access = rig.directory / "access.toml"
    access.write_text(f'[clients.worker]\ntoken_sha256 = "{"0" * 64}"\n')
    serve = {"port": 0, "access_file": str(access), "plain_http": True}
    settings = RelaySettings.from_mapping({"redis": {"url": f"redis://{PLACE}"}, "serve": serve})
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(AWAY_SECONDS + AFTER_SECONDS, stop.set)
    await server.serve(settings, stop)


class ServingSocket(Socket):
    """A WebSocket to a node that confirms what a worker serves, and has no request."""

    def __init__(self) -> None:
        self._heads: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(self, frame: bytes) -> None:
        head, _ = wire.unframe(frame)
        self._heads.put_nowait({"type": "serving", "slots": head["at_once"]})

    async def next(self) -> bytes:
        return wire.frame(await self._heads.get())

    async def close(self) -> None:
        """There is nothing to end."""


async def work(websocket: bool, rig: Rig) -> None:
    """Have a worker get requests from a node."""
    socket, ask = Session.socket, Session.ask

    async def late_socket(session: Session, url: str, most: int) -> Socket:
        return await socket(session, url, most) if is_away() else ServingSocket()

    async def late_ask(session: Session, method: str, url: str, **options: Any) -> tuple[int, Any, bytes]:
        if is_away():
            return await ask(session, method, url, **options)
        if method == "POST":
            await asyncio.sleep(float(url.partition("wait=")[2].partition("&")[0]))
        return 204, {}, b""

    rig.patch.setattr(Session, "socket", late_socket)
    rig.patch.setattr(Session, "ask", late_ask)
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(AWAY_SECONDS + AFTER_SECONDS, stop.set)
    await RelayWorker(f"http://{PLACE}", "maps/LAX", lambda _: b"", websocket=websocket).serve(stop)


PULSES, REFUSED = {"Redis", "the pulses of Redis"}, RedisRefused("It says: WRONGPASS")
PROGRAMS = {
    "osrdyne relay serve": WaitingProgram(partial(serve, Away(f"{PLACE}: refused", sent=False)), PULSES),
    "osrdyne relay serve that Redis refuses": WaitingProgram(partial(serve, REFUSED), PULSES, "WRONGPASS"),
    "osrdyne_relay.worker.RelayWorker": WaitingProgram(partial(work, True), {"the relay"}),
    "osrdyne_relay.worker.RelayWorker that polls": WaitingProgram(partial(work, False), {"the relay"}),
}
