"""A hostile peer asks the jobs' HTTP server, as a process, with the token and without: true requests are answered.

What it sends is generated from a seed, which is in the name of the test.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from osrdyne_jobs import engine_for, migrate
from testbed.hostile import http
from testbed.hostile.chance import drawn
from testbed.hostile.sending import ask
from testbed.suite import examples
from tests.jobs.administration import TOKEN, Administration
from tests.jobs.test_commands_serve import JOB, ServeProcess, start
from tests.simulation.many_seeds import first_seed

__all__ = ["start"]  # a fixture

PATHS = [
    *("/api/jobs", "/api/jobs", "/api/jobs/1", "/api/jobs/2/redo", "/api/jobs/3/cancel", "/api/jobs/figures"),
    *("/api/jobs/schemas", "/metrics", "/openapi.json", "/healthz", "/", "/page.js"),
]
FIELDS: dict[str, list[object]] = {
    "type": ["plain", "region"],
    "resource": ["r", "s"],
    "payload": [None, {}, {"year": 2013}],
}
PARAMETERS = ["type", "resource", "state", "older_than", "history", "after", "most"]


def attack(served: Administration, requests: list[bytes]) -> set[bytes]:
    """Send all of it, several side by side; return the status of each answer."""

    def send(request: bytes) -> bytes:
        answer = ask(served.host, served.port, request)
        assert answer == b"" or answer.startswith(b"HTTP/1."), answer
        assert b"Traceback" not in answer, answer
        return answer[9:12]

    with ThreadPoolExecutor(4) as threads:
        return set(threads.map(send, requests))


@pytest.mark.parametrize("seed", [first_seed()])
@pytest.mark.parametrize(
    ("token", "given", "expected"),
    [
        (TOKEN, TOKEN, {b"200", b"201", b"422"}),
        pytest.param(TOKEN, "wrong", {b"401"}, marks=pytest.mark.full),
        pytest.param(None, "none", {b"200", b"201", b"422"}, marks=pytest.mark.full),
    ],
    ids=["who knows the token", "a stranger", "where there is no token"],
)
def test_no_request_is_answered_as_a_fault_of_the_server_and_true_requests_are_answered(
    start: Callable[..., ServeProcess],
    database_url: str,
    token: str | None,
    given: str,
    expected: set[bytes],
    seed: int,
) -> None:
    engine = engine_for(database_url)
    migrate(engine)
    engine.dispose()
    guarded = {} if token is None else {"OSRDYNE_JOBS_TOKEN": token}
    process = start("--port", "0", OSRDYNE_JOBS_DATABASE=database_url, **guarded)
    served = process.client(token)
    sent = (("Content-Type", "application/json"), ("Authorization", f"Bearer {given}"))
    attacks = (
        http.requests(PATHS, *sent)
        | http.posts("/api/jobs", http.documents(FIELDS), *sent)
        | http.gets("/api/jobs", PARAMETERS, *sent)
    )
    requests = drawn(attacks, seed, examples(800))
    seen = set[bytes]()
    for at in range(0, len(requests), 40):
        seen |= attack(served, requests[at : at + 40])
        assert served.ask("POST", "/api/jobs", JOB).status == 201

    # Much of it is understood.
    assert expected <= seen
    assert not seen & {b"500", b"503"}
    assert served.get("/api/jobs")["jobs"]
    assert {line["message"] for line in process.lines() if line["level"] != "info"} == set()
    assert process.end() == 0
