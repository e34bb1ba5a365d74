"""Facts about our containers, read from the engine's listings, events and inspections. Pure.

A container's name says whether it is to stop: the engine does not report a requested stop, so the driver renames a
container before it requests one. A name outlives daemon and engine, and a person sees it in a listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from osrdyne.drivers.base import Group, GroupState
from osrdyne.drivers.docker.template import KEY, TEMPLATE
from osrdyne_protocol import names
from osrdyne_protocol.worker_environment import WORKER_ID

#: States in which no process runs, and none will unless the container is started.
_OVER = frozenset({"created", "exited", "dead"})


@dataclass(frozen=True, slots=True)
class Container:
    """One container of ours. `state` is the engine's word: created, running, paused, restarting, exited, dead."""

    id: str
    key: str
    #: Hash of the template that it was made from.
    template: str
    state: str
    #: A stop was requested.
    stopping: bool

    @property
    def is_over(self) -> bool:
        """No process runs in it, and none will."""
        return self.state in _OVER


def stopping_name(name: str, container_id: str) -> str:
    """Return the name of a container that is to stop; that of the group is free for the next one."""
    return f"{name}.stopping.{container_id[:12]}"


def is_stopping(name: str) -> bool:
    """Return whether a container of that name is to stop."""
    return ".stopping." in name


def container(listed: Mapping[str, Any], pool: str, instance: str) -> Container | None:
    """Return one of our containers from a listing; None for one that only looks like ours, or is being removed."""
    labels, own = listed.get("Labels") or {}, _names(listed)
    if KEY not in labels or len(own) != 1 or listed["State"] == "removing":
        return None
    name = names.engine_name(pool, instance, labels[KEY])
    stopping = own[0] == stopping_name(name, listed["Id"])
    if own[0] != name and not stopping:
        return None
    return Container(listed["Id"], labels[KEY], labels.get(TEMPLATE, ""), listed["State"], stopping)


def other_names(listed: Iterable[Mapping[str, Any]], pool: str, instance: str) -> list[str]:
    """Return the names of containers that run with our labels, and not under a name of ours."""
    return [
        name
        for raw in listed
        if raw["State"] not in {*_OVER, "removing"} and container(raw, pool, instance) is None
        for name in _names(raw)
    ]


def _names(listed: Mapping[str, Any]) -> list[str]:
    # A container that others link to has more names, which hold a second slash.
    return [name[1:] for name in listed.get("Names") or [] if name.count("/") == 1]


def groups(containers: Iterable[Container]) -> list[Group]:
    """Return the groups that containers make up. One that is to stop counts only where no other has followed it."""
    found: dict[str, Group] = {}
    for status in containers:
        if status.is_over or (status.stopping and status.key in found):
            continue
        found[status.key] = Group(status.key, _state(status), 0 if status.state == "restarting" else 1, status.template)
    return list(found.values())


def _state(one: Container) -> GroupState:
    if one.stopping:
        return GroupState.STOPPING
    return GroupState.STARTING if one.state == "restarting" else GroupState.RUNNING


def grace(inspected: Mapping[str, Any] | None) -> int:
    """Return how long a container may take to stop, in seconds; 0 for one that has gone."""
    return (inspected or {}).get("Config", {}).get("StopTimeout") or 0


def worker_id(inspected: Mapping[str, Any] | None) -> str | None:
    """Return the identity of the worker in a container; None of one that has gone."""
    environment = (inspected or {}).get("Config", {}).get("Env") or []
    found = (entry.removeprefix(f"{WORKER_ID}=") for entry in environment if entry.startswith(f"{WORKER_ID}="))
    return next(found, None)


def has_endless_log(inspected: Mapping[str, Any] | None) -> bool:
    """Return whether the log of a container that names none has no limit: `json-file` alone has none by itself."""
    log = (inspected or {}).get("HostConfig", {}).get("LogConfig") or {}
    return log.get("Type") == "json-file" and "max-size" not in (log.get("Config") or {})


def has_init(inspected: Mapping[str, Any] | None) -> bool:
    """Return whether the engine's init is a container's first process, and the worker its child."""
    return bool((inspected or {}).get("HostConfig", {}).get("Init"))


def was_asked_to_stop(events: Iterable[Mapping[str, Any]]) -> bool | None:
    """Return, from a container's past events, whether the stop that its name announces has reached it; None: unknown.

    The engine remembers few events, and none from before its own start.
    """
    latest = [event["Action"] for event in events if event.get("Action") in ("rename", "start", "kill")][-1:]
    return latest[0] == "kill" if latest else None
