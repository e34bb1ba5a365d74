"""The driver for workers that are pods: one Deployment for each group, in one namespace, scaled by its autoscaler.

Reads the cluster through copies that watches keep up to date, so that a listing is cheap with any number of groups;
writes Deployments and, where declared, the autoscaler of each. What runs is known from the cluster alone, by labels and
annotations. The cluster restarts a worker that ended; the driver reports the failure as a change.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from osrdyne.drivers.base import Change, Group, GroupState, How, WorkerEnd
from osrdyne.drivers.kubernetes import facts
from osrdyne.drivers.kubernetes.api import DEPLOYMENTS, PODS, SCALERS, Api
from osrdyne.drivers.kubernetes.facts import DeploymentFacts, ObjectFacts, PodFacts
from osrdyne.drivers.kubernetes.manifests import Manifests
from osrdyne.drivers.kubernetes.mirror import Mirror
from osrdyne.drivers.unread import UnreadChanges
from osrdyne.errors import DriverError
from osrdyne_runtime.retry import Retry

__all__ = ["KubernetesDriver"]

log = logging.getLogger(__name__)


class KubernetesDriver:
    """Workers as pods. Use it from one event loop; two daemons in one namespace do no harm."""

    owns_workers = True

    def __init__(self, manifests: Manifests, api: Api, *, timeout: float) -> None:
        """`timeout` is the longest wait for a first sight of the cluster, in seconds."""
        self.template = manifests.template
        self._manifests = manifests
        self._api = api
        self._timeout = timeout
        selector = ",".join(f"{name}={value}" for name, value in manifests.labels.items())
        parse_pod = partial(facts.pod, container=manifests.templates.container)
        self._deployments = Mirror(api, DEPLOYMENTS, selector, facts.deployment, self._on_deployment)
        self._pods = Mirror(api, PODS, selector, parse_pod, self._on_pod)
        self._scaling = SCALERS.get(manifests.templates.autoscaling)
        self._scalers: Mirror[ObjectFacts] | None = None
        if self._scaling is not None:
            self._scalers = Mirror(api, self._scaling, selector, facts.thing, self._on_scaler)
        #: Running workers by key.
        self._running: Counter[str] = Counter()
        #: Keys whose start was requested while their group was stopping: the next group follows it.
        self._start_again: set[str] = set()
        #: Keys whose autoscaler is being created.
        self._scaled_by: dict[str, asyncio.Task[None]] = {}
        #: One action at a time on a key. A lock goes when no action holds it.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._unread = UnreadChanges()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, key: str) -> None:
        """Apply the Deployment, then its autoscaler. While the former stops, the next follows when it is gone."""
        await self._ready()
        async with self._lock(key):
            group = self._deployment_of(key)
            if group is None:
                await self._create(key)
            elif group.leaving:
                self._start_again.add(key)

    async def stop(self, key: str) -> None:
        """Delete the autoscaler, then the Deployment: its pods get SIGTERM and their grace, and it stays listed."""
        await self._ready()
        async with self._lock(key):
            self._start_again.discard(key)
            group = self._deployment_of(key)
            if group is not None and not group.leaving:
                await self._delete(group)

    async def list(self) -> builtins.list[Group]:
        """Return the groups of our pool and instance, without asking the cluster. An autoscaler that is not as declared
        is put in its place, in the background.
        """
        await self._ready()
        found = self._deployments.objects.values()
        # Of two, the one that a start would apply is the group of the key.
        groups = {group.key: group for group in sorted(found, key=self._has_its_name)}
        for group in found:
            if groups[group.key] is not group and not group.leaving:
                self._spawn(self._remove_second(group), "kubernetes-remove-second")
        for group in groups.values():
            if self._lacks_scaler(group) and group.key not in self._scaled_by:
                self._scaled_by[group.key] = self._spawn(self._scale(group.key), "kubernetes-scale")
        return [self._group(group) for group in groups.values()]

    def changes(self) -> AsyncIterator[Change]:
        """Yield exits, pods that cannot run, and groups that have gone. Ends when the driver is closed."""
        return self._unread.until_end()

    async def close(self) -> None:
        """Stop watching. The workers run on."""
        self._unread.end()
        tasks = builtins.list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    def _deployment_of(self, key: str) -> DeploymentFacts | None:
        """Return the Deployment of a key, also one that an earlier version gave another name."""
        found = self._deployments.objects
        return found.get(self._manifests.name(key)) or next(
            (group for group in found.values() if group.key == key), None
        )

    def _has_its_name(self, group: DeploymentFacts) -> bool:
        return group.name == self._manifests.name(group.key)

    async def _ready(self) -> None:
        """Wait until the cluster is seen. Raises `DriverError` with the reason while it is not."""
        if not self._tasks and not self._unread.has_ended():
            self._spawn(self._deployments.run(), "kubernetes-deployments")
            self._spawn(self._pods.run(), "kubernetes-pods")
            if self._scalers is not None:
                self._spawn(self._scalers.run(), "kubernetes-scalers")
        await self._deployments.ready(self._timeout)
        await self._pods.ready(self._timeout)

    async def _create(self, key: str) -> None:
        name, what = self._manifests.name(key), f"start key {key!r}"
        answer = await self._api.apply(DEPLOYMENTS, name, self._manifests.deployment(key), what=what)
        group = self._deployments.put(answer)
        if group is None:
            raise DriverError(f"cannot {what}: the cluster changed the labels of Deployment {name}; see its webhooks")
        if group.leaving:
            self._start_again.add(key)
            return
        log.info("group applied", extra={"key": key, "deployment": name})
        await self._apply_scaler(group, what)

    async def _delete(self, group: DeploymentFacts) -> None:
        what = f"stop key {group.key!r}"
        if self._scaling is not None:
            await self._api.delete(self._scaling, group.name, what=what)
        left = await self._api.delete(DEPLOYMENTS, group.name, what=what, foreground=True)
        if left is not None:
            self._deployments.put(left)
        log.info("group asked to stop", extra={"key": group.key, "deployment": group.name})

    async def _remove_second(self, group: DeploymentFacts) -> None:
        """Delete what an earlier version has beside the group of a key. The next listing tries again."""
        try:
            async with self._lock(group.key):
                now = self._deployments.objects.get(group.name)
                if now is not None and not now.leaving:
                    await self._delete(now)
        except DriverError as error:
            log.warning("a second Deployment of a key stays for now", extra={"key": group.key, "reason": str(error)})

    async def _apply_scaler(self, group: DeploymentFacts, what: str) -> None:
        if self._scaling is not None and self._scalers is not None:
            body = self._manifests.scaler(group.key, group.name, group.uid)
            self._scalers.put(await self._api.apply(self._scaling, group.name, body, what=what))

    def _lacks_scaler(self, group: DeploymentFacts | None) -> bool:
        if self._scalers is None or not self._scalers.is_synced:
            return False
        # A group of another template may have an autoscaler of another kind, and is stopped before long.
        if group is None or group.leaving or group.template != self.template:
            return False
        scaler = self._scalers.objects.get(group.name)
        # One that is being deleted must have gone before the next can be made.
        return scaler is None or (scaler.template != self._manifests.scaler_template and not scaler.leaving)

    async def _scale(self, key: str) -> None:
        """Give a running group the autoscaler that is declared, trying again until it has it or is gone."""
        retry, reported = Retry(), ""
        try:
            while True:
                async with self._lock(key):
                    group = self._deployment_of(key)
                    if group is None or not self._lacks_scaler(group):
                        return
                    try:
                        await self._apply_scaler(group, f"scale key {key!r}")
                    except DriverError as error:
                        if reported != str(error):
                            reported = str(error)
                            self._unread.tell(Change(key, reported))
                await asyncio.sleep(retry.failed())
        finally:
            self._scaled_by.pop(key, None)

    async def _follow_up(self, key: str) -> None:
        """Start the group that was asked for while the former was stopping."""
        try:
            async with self._lock(key):
                if key in self._start_again:
                    self._start_again.discard(key)
                    await self._create(key)
        except DriverError as error:
            self._unread.refused(key, error)

    def _group(self, group: DeploymentFacts) -> Group:
        workers = self._running[group.key]
        alive = GroupState.RUNNING if workers else GroupState.STARTING
        state = GroupState.STOPPING if group.leaving else alive
        return Group(group.key, state, workers, group.template)

    def _on_deployment(self, before: DeploymentFacts | None, now: DeploymentFacts | None) -> None:
        if now is not None:
            if now.refusal is not None and (before is None or before.refusal != now.refusal):
                self._unread.tell(Change(now.key, now.refusal, WorkerEnd(How.NO_START)))
        elif before is not None:
            error = None if before.leaving else "the Deployment was deleted from outside; requests start it again"
            self._unread.tell(Change(before.key, error))
            if before.key in self._start_again:
                self._spawn(self._follow_up(before.key), "kubernetes-follow-up")

    def _on_pod(self, before: PodFacts | None, now: PodFacts | None) -> None:
        pod = now or before
        assert pod is not None
        key, workers = pod.key, self._running[pod.key]
        self._running[key] += (now is not None and now.running) - (before is not None and before.running)
        if not self._running[key]:
            del self._running[key]
        for text, end in facts.news(before, now) if now is not None else ():
            log.warning("worker failed", extra={"key": key, "pod": pod.name, "reason": text})
            ran = end.how is not How.NO_START
            shown = replace(end, log=f"kubectl logs --previous {pod.name}") if ran else end
            self._unread.tell(Change(key, text, shown))
        if now is None and pod.leaving:
            self._unread.tell(Change(key, None, WorkerEnd(How.STOPPED, worker_id=pod.name)))
        if workers and self._running[key] and workers != self._running[key]:
            self._unread.tell(Change(key))  # the autoscaler changed the number of pods

    def _on_scaler(self, before: ObjectFacts | None, now: ObjectFacts | None) -> None:
        if now is None and before is not None:
            self._unread.tell(Change(before.key))  # the listing that follows makes another, unless the group goes too

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def _spawn(self, action: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(action, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the driver failed unexpectedly", exc_info=error, extra={"task": task.get_name()})
