"""A live pool comes from the release before to this one, and back, while it is called: every call is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.waiting import until
from tests.conftest import Vhost
from tests.release.live_pool import LATEST, LivePool, live_pool
from tests.release.two_versions import KEYS, Caller, Version

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

#: Says which process answered, and of which environment.
WORKER = """
import os, sys
from osrdyne_worker import run
run(lambda request: f"{os.getpid()} {sys.prefix}".encode())
"""
CALLER = Caller("from osrdyne_client import Client", "Client(os.environ['AMQP_URI'], 'core')")


@pytest.fixture
def pool(vhost: Vhost, tmp_path: Path) -> Iterator[LivePool]:
    with live_pool(vhost, tmp_path, WORKER) as live:
        yield live


@pytest.mark.parametrize("first", ["daemon", "workers"])
def test_a_live_pool_is_upgraded_and_downgraded_by_hand_and_every_call_is_answered(
    pool: LivePool, before: Version, after: Version, first: str
) -> None:
    pool.settings(before)
    pool.declare(before)
    pool.exchange_daemon(before)
    with ExitStack() as callers:
        answers = [
            callers.enter_context(CALLER.called(version, pool.folder, pool.variables)) for version in (before, after)
        ]
        # To this version: what is declared comes first, and the order of the rest does not matter
        pool.declare(after)
        for daemon, workers in [(after, before) if first == "daemon" else (before, after), (after, after)]:
            pool.settings(workers)
            pool.exchange_daemon(daemon)
            until(pool.answered_by(workers), what="answers of the new workers")
        # And back, in the other order
        for daemon, workers in [(before, after) if first == "daemon" else (after, before), (before, before)]:
            pool.settings(workers)
            pool.exchange_daemon(daemon)
            until(pool.answered_by(workers), what="answers of the old workers")
        pool.declare(before)

    for called in answers:
        assert max(seconds for *_, seconds in called.lines) < LATEST
        # Each key had one worker of each kind, and the first one's successor: none was restarted without need
        kinds = {key: [Path(worker.split()[1]) for worker in seen] for key, seen in called.workers().items()}
        places = [before.environment.place, after.environment.place, before.environment.place]
        assert kinds == dict.fromkeys(kinds, places)
        assert len(kinds) == KEYS
