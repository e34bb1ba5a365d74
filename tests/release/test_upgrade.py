"""A live pool comes from the release before to this one, and back, while it is called: every call is answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Vhost
from tests.release.live_pool import WORKER, LivePool, check_all_answered, live_pool
from tests.release.two_versions import Version

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.fixture
def pool(vhost: Vhost, tmp_path: Path) -> Iterator[LivePool]:
    with live_pool(vhost, tmp_path, WORKER, LivePool) as live:
        yield live


@pytest.mark.parametrize("first", ["daemon", "workers"])
def test_a_live_pool_is_upgraded_and_downgraded_by_hand_and_every_call_is_answered(
    pool: LivePool, before: Version, after: Version, first: str
) -> None:
    check_all_answered(pool.go_there_and_back(before, after, first), before, after)
