"""A real server of the jobs' administration, and a client that sends what it is given."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from osrdyne_jobs import JobType
from osrdyne_jobs.client import Caster
from osrdyne_jobs.http import serve
from testbed.waiting import PATIENCE_SECONDS

TOKEN = "correct-horse-battery-staple"
TYPES = (JobType("t", payload=dict[str, int]), JobType("rebuild", payload=dict[str, str], coalesce=True))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Administration:
    """The client."""

    def __init__(self, address: str, token: str | None) -> None:
        self.address = address
        self.host, port = address.removeprefix("http://").rstrip("/").rsplit(":", 1)
        self.port = int(port)
        self._token = token

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request as JSON with the token. A header's name has underscores; an empty value leaves it out."""
        sent = {"content-type": "application/json"} if method == "POST" else {}
        if self._token is not None:
            sent["authorization"] = f"Bearer {self._token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_SECONDS)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            answer = connection.getresponse()
            return Answer(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json


@contextmanager
def administration(
    engine: Engine, *, token: str | Callable[[], str] | None = TOKEN, client: Caster | None = None
) -> Iterator[Administration]:
    """Serve on a free port while the context is open."""
    stop, listening, ended = threading.Event(), queue.Queue[str | Exception](), []

    def run() -> None:
        try:
            serve(engine, port=0, token=token, types=TYPES, client=client, stop=stop, listening=listening.put)
        except Exception as error:  # noqa: BLE001 - raised again in the test
            listening.put(error)
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        address = listening.get(timeout=PATIENCE_SECONDS)
        if isinstance(address, Exception):
            raise address
        yield Administration(address, None if callable(token) else token)
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert ended == []
    assert not thread.is_alive()
