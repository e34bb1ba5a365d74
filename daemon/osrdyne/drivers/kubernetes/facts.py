"""What the cluster's objects say about worker groups, and which of it to report to a person. Pure.

An exit is reported once: pod, container and container id identify it. A container that cannot start is reported at the
first try, not at every further one. An exit before the first sight of a pod, which runs again, is not reported.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from osrdyne.drivers import redaction
from osrdyne.drivers.base import How, WorkerEnd
from osrdyne.drivers.kubernetes.manifests import TEMPLATE_ANNOTATION, key_of
from osrdyne.drivers.kubernetes.refusals import clean
from osrdyne.drivers.kubernetes.template import Manifest


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What every object has: its name, the key it belongs to, and the version it was seen in."""

    name: str
    key: str
    uid: str
    version: int
    #: Its deletion was requested.
    leaving: bool
    #: Hash of its template.
    template: str


@dataclass(frozen=True, slots=True)
class DeploymentFacts(ObjectFacts):
    """A Deployment of ours."""

    #: Why its pods cannot be made, such as a quota; None while they can.
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended last. `over` when it runs again."""

    container_id: str
    text: str
    over: bool
    end: WorkerEnd


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod does not run. `kind` identifies a trouble whose text changes from one try to the next."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PodFacts(ObjectFacts):
    """A pod of ours."""

    #: Its worker runs.
    running: bool
    exits: tuple[ContainerExit, ...] = ()
    trouble: Trouble | None = None


def thing(manifest: Manifest) -> ObjectFacts | None:
    """Return what is known of any object; None for one that is not ours."""
    common = _common(manifest)
    return None if common is None else ObjectFacts(**common)


def deployment(manifest: Manifest) -> DeploymentFacts | None:
    """Return what a Deployment says; None for one that is not ours."""
    common = _common(manifest)
    if common is None:
        return None
    refusal = None
    for condition in (manifest.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            message = clean(condition.get("message") or condition.get("reason") or "")
            remedy = "raise the ResourceQuota" if "exceeded quota" in message else "correct deployment.yaml"
            refusal = f"no pod can be made: {message}; {remedy}, or allow it"
    return DeploymentFacts(**common, refusal=refusal)


def pod(manifest: Manifest, container: str) -> PodFacts | None:
    """Return what a pod says, whose worker is the container of this name; None for a pod that is not ours."""
    common = _common(manifest)
    if common is None:
        return None
    status = manifest.get("status") or {}
    regular, first = status.get("containerStatuses") or [], status.get("initContainerStatuses") or []
    worker = [status for status in regular if status.get("name") == container] or regular
    return PodFacts(
        **common,
        running=any("running" in (status.get("state") or {}) for status in worker),
        exits=tuple(
            found
            for status in (*first, *regular)
            if (found := _exit(status, is_worker=status in worker, is_first=status in first)) is not None
        ),
        trouble=_trouble(status, (*first, *regular)),
    )


def news(before: PodFacts | None, now: PodFacts) -> list[tuple[str, WorkerEnd]]:
    """Return what a person should know of a pod that was `before` (None: never seen) and is `now`, with each end.

    The end of a pod that is being deleted was requested.
    """
    if now.leaving:
        return []
    known = {ended.container_id for ended in before.exits} if before else set()
    new = [ended for ended in now.exits if ended.container_id not in known and (before or not ended.over)]
    found = [(ended.text, replace(ended.end, worker_id=now.name)) for ended in new]
    if now.trouble is not None and (
        before is None or before.trouble is None or before.trouble.kind != now.trouble.kind
    ):
        found.append((now.trouble.text, WorkerEnd(How.NO_START)))
    return found


def _common(manifest: Manifest) -> dict[str, Any] | None:
    metadata = manifest.get("metadata") or {}
    key = key_of(metadata)
    if key is None:
        return None
    return {
        "name": metadata["name"],
        "key": key,
        "uid": metadata["uid"],
        "version": int(metadata["resourceVersion"]),
        "leaving": "deletionTimestamp" in metadata,
        "template": metadata["annotations"].get(TEMPLATE_ANNOTATION, ""),
    }


def _exit(status: Mapping[str, Any], *, is_worker: bool, is_first: bool) -> ContainerExit | None:
    state = status.get("state") or {}
    ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated")
    if not ended or (is_first and ended.get("exitCode") == 0):
        return None  # an init container that has done its work
    who = "worker" if is_worker else f"container {status.get('name')}"
    identity = ended.get("containerID") or f"{status.get('name')} {ended.get('finishedAt')}"
    return ContainerExit(identity, f"{who} {_how(ended)}", over="running" in state, end=_end(ended))


def _end(ended: Mapping[str, Any]) -> WorkerEnd:
    """Return how a container ended, as a value. Its message is the end of its output, where the template says so."""
    reason, code, how = ended.get("reason") or "", ended.get("exitCode"), How.UNKNOWN
    if reason == "OOMKilled":
        how, code = How.MEMORY, None
    elif reason in ("StartError", "ContainerCannotRun"):
        how, code = How.NO_START, None
    elif isinstance(code, int):
        by_signal = 128 < code < 128 + signal.NSIG
        how, code = (How.SIGNAL, code - 128) if by_signal else (How.EXIT, code)
    lines = [clean(line) for line in (ended.get("message") or "").splitlines()]
    return WorkerEnd(how, code, seconds=_seconds(ended), output=redaction.last_lines(lines, set()))


def _how(ended: Mapping[str, Any]) -> str:
    reason, code = ended.get("reason") or "", ended.get("exitCode")
    message = clean((ended.get("message") or "").strip().rpartition("\n")[2])
    if reason == "OOMKilled":
        return f"was killed because it needed more memory than its limit{_after(ended)}; raise resources.limits.memory"
    if reason in ("StartError", "ContainerCannotRun"):
        return f"could not be started: {message or reason}; correct command and image in deployment.yaml"
    how = f"ended with status {_status(code)}{_after(ended)}"
    return f"{how}: {message}" if message else how


def _status(code: object) -> str:
    """Return an exit status, with the signal that it stands for in a container."""
    if code == 128 + signal.SIGKILL:
        return f"{code} (SIGKILL: from outside, or for more memory than its limit)"
    try:
        return f"{code} ({signal.Signals(int(str(code)) - 128).name})"
    except ValueError:
        return str(code)


def _after(ended: Mapping[str, Any]) -> str:
    seconds = _seconds(ended)
    return "" if seconds is None else f" after {seconds:.0f} s"


def _seconds(ended: Mapping[str, Any]) -> float | None:
    """Return for how long it ran; the cluster reports whole seconds."""
    try:
        began, over = (datetime.fromisoformat(ended[name]) for name in ("startedAt", "finishedAt"))
    except (KeyError, TypeError, ValueError):
        return None
    return max(0.0, (over - began).total_seconds()) if began.year > 1 else None


def _trouble(status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> Trouble | None:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            message = clean(condition.get("message") or "")
            text = f"no node takes the pod: {message}; lower its requests and selectors, or add nodes"
            return Trouble("unschedulable", text)
    if status.get("phase") == "Failed":
        reason = status.get("reason") or "Failed"
        return Trouble(reason, f"pod failed: {reason}: {clean(status.get('message') or 'no message')}")
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        message = clean(waiting.get("message") or reason)
        if reason in _WAITING and _NOT_YET not in message:
            kind, text = _WAITING[reason]
            return Trouble(kind, text.format(image=container.get("image") or "?", message=message))
    return None


_NO_IMAGE = ("image", "image {image} cannot be had: {message}; correct deployment.yaml, or the pull secret")
_NOT_MADE = ("create", "container cannot be made: {message}; correct deployment.yaml, or what it names")

#: What the kubelet says while it has not seen a Secret or ConfigMap yet: it tries again by itself.
_NOT_YET = "timed out waiting for the condition"

#: Reasons for which a container waits that do not pass by themselves. A crash is reported as an exit.
_WAITING = {
    "ErrImagePull": _NO_IMAGE,
    "ImagePullBackOff": _NO_IMAGE,
    "ErrImageNeverPull": _NO_IMAGE,
    "InvalidImageName": _NO_IMAGE,
    "ImageInspectError": _NO_IMAGE,
    "RegistryUnavailable": _NO_IMAGE,
    "SignatureValidationFailed": _NO_IMAGE,
    "CreateContainerConfigError": _NOT_MADE,
    "CreateContainerError": _NOT_MADE,
    "RunContainerError": _NOT_MADE,
}
