"""The copy of a cluster's objects: what it reports, when the watch breaks, and when answers come out of order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from osrdyne.drivers.kubernetes.api import DEPLOYMENTS
from osrdyne.drivers.kubernetes.facts import DeploymentFacts, deployment
from osrdyne.drivers.kubernetes.mirror import Mirror
from osrdyne.drivers.kubernetes.refusals import ApiRefused
from osrdyne.errors import DriverError
from tests.unit.drivers.test_kubernetes_facts import Manifest, metadata


def found(key: str, version: int, uid: str = "u1") -> Manifest:
    return {"metadata": {**metadata(key, version), "name": f"echo-{key}", "uid": uid}}


def event(kind: str, key: str, version: int, uid: str = "u1") -> Manifest:
    return {"type": kind, "object": found(key, version, uid)}


class ScriptedCluster:
    """Answers listings and watches as the test says; an exception among events ends a watch."""

    def __init__(self) -> None:
        self.listing: tuple[list[Manifest], str] | Exception = ([], "1")
        self.events: asyncio.Queue[Manifest | Exception | None] = asyncio.Queue()
        self.listed = 0
        self.watched: list[str] = []

    async def list(self, *_: object) -> tuple[list[Manifest], str]:
        self.listed += 1
        if isinstance(self.listing, Exception):
            raise self.listing
        return self.listing

    async def watch(self, _: object, __: object, version: str) -> AsyncGenerator[Manifest, None]:
        self.watched.append(version)
        while (one := await self.events.get()) is not None:
            if isinstance(one, Exception):
                raise one
            yield one


class MirrorView:
    """A mirror of a scripted cluster, and what it has reported."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()
        self.key_changes: list[tuple[str | None, str | None]] = []
        self.mirror = Mirror(self.cluster, DEPLOYMENTS, "", deployment, self._note)

    def _note(self, before: DeploymentFacts | None, now: DeploymentFacts | None) -> None:
        self.key_changes.append((before.key if before else None, now.key if now else None))

    async def settled(self, *events: Manifest | Exception | None) -> None:
        for happening in events:
            self.cluster.events.put_nowait(happening)
        for _ in range(10 + 2 * len(events)):
            await asyncio.sleep(0)

    def versions(self) -> dict[str, int]:
        return {thing.key: thing.version for thing in self.mirror.objects.values()}


@pytest.fixture
async def seen() -> MirrorView:
    return MirrorView()


@contextlib.asynccontextmanager
async def running(seen: MirrorView) -> AsyncIterator[None]:
    task = asyncio.create_task(seen.mirror.run())
    try:
        await seen.mirror.ready(60)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


pytestmark = pytest.mark.looptime


async def test_it_lists_once_and_follows_from_there(seen: MirrorView) -> None:
    seen.cluster.listing = ([found("a", 3)], "5")
    async with running(seen):
        await seen.settled(event("ADDED", "b", 6), event("MODIFIED", "a", 7), event("DELETED", "b", 8))
    assert seen.versions() == {"a": 7}
    assert seen.key_changes == [(None, "a"), (None, "b"), ("a", "a"), ("b", None)]
    assert (seen.cluster.listed, seen.cluster.watched) == (1, ["5"])


async def test_a_watch_that_ends_goes_on_where_it_ended(seen: MirrorView) -> None:
    async with running(seen):
        await seen.settled(event("ADDED", "a", 6), {"type": "BOOKMARK", "object": found("", 9)}, None)
    assert (seen.cluster.listed, seen.cluster.watched) == (1, ["1", "9"])


@pytest.mark.parametrize("why", [ApiRefused("too old", 410), DriverError("connection lost"), RuntimeError("a mistake")])
async def test_a_watch_that_breaks_is_made_again_and_only_what_differs_is_reported(
    seen: MirrorView, why: Exception
) -> None:
    seen.cluster.listing = ([found("stays", 2), found("goes", 2), found("changes", 2)], "5")
    async with running(seen):
        seen.key_changes.clear()
        seen.cluster.listing = ([found("stays", 2), found("changes", 7), found("comes", 8)], "9")
        await seen.settled(why)
        await asyncio.sleep(60)
        await seen.mirror.ready(1)
    assert sorted(map(str, seen.key_changes)) == sorted(
        map(str, [("goes", None), ("changes", "changes"), (None, "comes")])
    )
    assert seen.cluster.watched == ["5", "9"]


async def test_while_the_cluster_is_away_the_reason_is_reported_and_it_is_asked_ever_more_rarely(
    seen: MirrorView,
) -> None:
    seen.cluster.listing = DriverError("no answer; it is tried again")
    task = asyncio.create_task(seen.mirror.run())
    with pytest.raises(DriverError, match="no answer"):
        await seen.mirror.ready(600)
    assert 100 < seen.cluster.listed < 200
    seen.cluster.listing = ([], "1")
    await seen.mirror.ready(10)
    assert seen.mirror.failure is None
    task.cancel()
    await asyncio.wait([task])


async def test_a_watch_that_is_refused_does_not_list_without_pause_and_is_logged_once(
    seen: MirrorView, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(seen):
        for _ in range(200):
            seen.cluster.events.put_nowait(ApiRefused("cannot watch: forbidden", 403))
        await asyncio.sleep(60)
        assert 5 < seen.cluster.listed < 30
        assert [record.reason for record in caplog.records] == ["cannot watch: forbidden"]  # type: ignore[attr-defined]


async def test_an_answer_is_seen_before_the_watch_reports_it_and_reported_once(seen: MirrorView) -> None:
    async with running(seen):
        assert seen.mirror.put(found("a", 6)) is not None
        assert seen.versions() == {"a": 6}
        await seen.settled(event("ADDED", "a", 6))
    assert seen.key_changes == [(None, "a")]


async def test_an_answer_that_is_older_than_what_was_seen_changes_nothing(seen: MirrorView) -> None:
    async with running(seen):
        await seen.settled(event("ADDED", "a", 6), event("DELETED", "a", 7))
        # The answer to the request that made it arrives last.
        seen.mirror.put(found("a", 6))
        assert seen.versions() == {}
        seen.mirror.put(found("b", 8))
        # And news from before that answer do not undo it.
        await seen.settled(event("DELETED", "b", 7))
        assert seen.versions() == {"b": 8}


async def test_a_watch_that_was_quiet_for_too_long_is_not_a_failure(
    seen: MirrorView, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(seen):
        await seen.settled(ApiRefused("too old", 410))
        assert seen.mirror.failure is None
        assert seen.mirror.is_synced
    assert caplog.records == []


async def test_a_listing_that_is_older_than_an_answer_does_not_undo_it(seen: MirrorView) -> None:
    async with running(seen):
        seen.mirror.put(found("a", 20))
        seen.cluster.listing = ([], "9")
        await seen.settled(ApiRefused("too old", 410))
        await asyncio.sleep(10)
        assert seen.versions() == {"a": 20}


async def test_an_object_that_was_made_again_meanwhile_has_gone_and_come(seen: MirrorView) -> None:
    seen.cluster.listing = ([found("a", 2)], "5")
    async with running(seen):
        seen.cluster.listing = ([found("a", 8, "u2")], "9")
        await seen.settled(ApiRefused("too old", 410))
        await asyncio.sleep(10)
    assert seen.key_changes == [(None, "a"), ("a", None), (None, "a")]


async def test_an_object_that_cannot_be_read_hides_no_other(seen: MirrorView) -> None:
    broken: dict[str, Any] = found("broken", 2)
    del broken["metadata"]["uid"]
    seen.cluster.listing = ([broken, found("a", 2)], "5")
    async with running(seen):
        assert seen.versions() == {"a": 2}


async def test_a_store_that_was_restored_from_a_backup_is_believed_though_its_versions_are_older(
    seen: MirrorView,
) -> None:
    # Given a group that was started, and one that was changed, after the backup was made
    seen.cluster.listing = ([found("changed", 40), found("later", 45), found("same", 20)], "50")
    async with running(seen):
        seen.key_changes.clear()
        seen.cluster.listing = ([found("changed", 12), found("same", 20), found("stopped since", 14)], "30")
        # When the cluster is back as it was then
        seen.cluster.events.put_nowait(DriverError("connection lost"))
        await asyncio.sleep(60)
        # Then what was started later has gone, so that it can be started again, and changes are seen as they come
        assert seen.versions() == {"changed": 12, "same": 20, "stopped since": 14}
        await seen.settled(event("MODIFIED", "changed", 31))
    assert seen.versions()["changed"] == 31
    assert sorted(seen.key_changes, key=str) == [
        ("changed", "changed"),
        ("changed", "changed"),
        ("later", None),
        (None, "stopped since"),
    ]


async def test_so_is_one_that_has_gone_on_past_what_was_seen_before(seen: MirrorView) -> None:
    seen.cluster.listing = ([found("a", 40)], "50")
    async with running(seen):
        seen.cluster.listing = ([found("a", 12)], "70")
        seen.cluster.events.put_nowait(DriverError("connection lost"))
        await asyncio.sleep(60)
        assert seen.versions() == {"a": 12}
