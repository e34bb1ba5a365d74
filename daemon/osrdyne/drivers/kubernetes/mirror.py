"""A copy of some objects of the cluster, kept up to date by listing once and watching from there.

Costs the cluster one request a minute, however many objects there are. When the watch breaks, or its version is too
old, everything is listed again and only differences are reported. A listing is the truth, even where it is older than
the copy: a cluster whose store was restored from a backup goes on from there, and so does the copy. `failure` says why
the copy may be out of date.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Generic, Protocol, TypeVar

from osrdyne.drivers.kubernetes.api import Resource
from osrdyne.drivers.kubernetes.facts import ObjectFacts
from osrdyne.drivers.kubernetes.template import Manifest
from osrdyne.errors import DriverError, EngineAway
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: Longest pause between two tries.
_LONGEST_PAUSE_SECONDS = 5.0

#: A watch that worked for this long resets the count of failures.
_HEALTHY_WATCH_SECONDS = 30.0

#: HTTP status for a version that is too old to watch from.
_GONE = 410

F = TypeVar("F", bound=ObjectFacts)


class WatchApi(Protocol):
    """Lists objects and watches them; `api.Api` does."""

    async def list(self, resource: Resource, selector: str, /) -> tuple[list[Manifest], str]: ...
    def watch(self, resource: Resource, selector: str, version: str, /) -> AsyncGenerator[Manifest, None]: ...


class Mirror(Generic[F]):
    """The objects of one kind with our labels. `on_change` is called with an object as it was and as it is."""

    def __init__(
        self,
        api: WatchApi,
        resource: Resource,
        selector: str,
        parse: Callable[[Manifest], F | None],
        on_change: Callable[[F | None, F | None], None],
    ) -> None:
        self._api = api
        self._resource = resource
        self._selector = selector
        self._parse = parse
        self._on_change = on_change
        self._synced = asyncio.Event()
        #: Version up to which everything has been seen.
        self._seen = 0
        #: By name; not to be changed.
        self.objects: dict[str, F] = {}
        #: Why the copy may be out of date; None while it is not.
        self.failure: str | None = None
        self._outage = OutageLog(log, "the API server", of=resource.plural)

    @property
    def is_synced(self) -> bool:
        """Whether the copy matches the cluster, with a delay of a moment."""
        return self._synced.is_set()

    async def ready(self, within: float) -> None:
        """Wait until the copy is up to date. Raises `DriverError` with the reason after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._synced.wait()
        except TimeoutError:
            what = f"the API server did not list {self._resource.plural} within {within:g} s"
            raise EngineAway(self.failure or what) from None

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        clock = asyncio.get_running_loop().time
        retry = Retry(limit=_LONGEST_PAUSE_SECONDS, stable_after=_HEALTHY_WATCH_SECONDS)
        while True:
            began = clock()
            try:
                await self._follow(await self._list())
            except DriverError as error:
                # A watch that slept too long is not a failure: the next listing has the changes.
                if getattr(error, "status", None) != _GONE:
                    self._lost(str(error))
            except Exception as error:
                log.error("the copy of the cluster failed unexpectedly", exc_info=error)
                self._lost(f"{type(error).__name__}: {error}")
            await asyncio.sleep(retry.failed(clock() - began))

    def put(self, manifest: Manifest) -> F | None:
        """Take over an object from an answer of the API server, which the watch will report later.

        Returns what it says; None for one that is not ours.
        """
        fact = self._parse(manifest)
        # An object that the watch reported already may have changed since, or be gone.
        if fact is not None and fact.version > self._seen:
            self._set(fact)
        return fact

    async def _list(self) -> str:
        found, version = await self._api.list(self._resource, self._selector)
        listed = {fact.name: fact for manifest in found if (fact := self._read(manifest)) is not None}
        before, self._seen = self._seen, int(version)
        for name, known in list(self.objects.items()):
            # What was put while we listed is newer than the listing, but not where the store has gone back meanwhile.
            if known.version > self._seen >= before:
                listed.pop(name, None)
            elif name not in listed:
                self._on_change(self.objects.pop(name), None)
        for fact in listed.values():
            self._replace(fact)
        self.failure = None
        self._synced.set()
        return version

    async def _follow(self, version: str) -> None:
        """Take over what changes after `version`; returns never but by an error."""
        while True:
            async with contextlib.aclosing(self._api.watch(self._resource, self._selector, version)) as events:
                async for event in events:
                    self._found_again()
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._take(event["type"], event["object"])
                    self._seen = max(self._seen, int(version))

    def _take(self, kind: str, manifest: Manifest) -> None:
        if kind == "BOOKMARK":
            return
        fact = self._read(manifest)
        if fact is None:
            return
        if kind != "DELETED":
            self._set(fact)
        elif fact.name in self.objects and self.objects[fact.name].version <= fact.version:
            self._on_change(self.objects.pop(fact.name), None)

    def _set(self, fact: F) -> None:
        before = self.objects.get(fact.name)
        if before is None or before.version < fact.version:
            self._replace(fact)

    def _replace(self, fact: F) -> None:
        before = self.objects.get(fact.name)
        if before is not None and before.version == fact.version and before.uid == fact.uid:
            return
        if before is not None and before.uid != fact.uid:
            self._on_change(before, None)
            before = None
        self.objects[fact.name] = fact
        self._on_change(before, fact)

    def _read(self, manifest: Manifest) -> F | None:
        try:
            return self._parse(manifest)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            name = (manifest.get("metadata") or {}).get("name")
            log.warning("object of the cluster cannot be read", extra={"object": name, "reason": repr(error)})
            return None

    def _found_again(self) -> None:
        self._outage.over(asyncio.get_running_loop().time())

    def _lost(self, reason: str) -> None:
        self._outage.failed(reason, asyncio.get_running_loop().time())
        self.failure = reason
        self._synced.clear()
