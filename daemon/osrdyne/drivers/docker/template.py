"""The declared container of a pool's workers, and what the driver adds to it for one group.

The file holds the body of the engine's own "create a container" call, in JSON or TOML, so that all options of the
engine can be declared. This module checks only the parts that the driver fills in; the engine checks the rest.
Reads the file once, at the start.
"""

from __future__ import annotations

import copy
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osrdyne_pool import images
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import milliseconds
from osrdyne_protocol import foreign_json, keys
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.worker_environment import VARIABLES, WorkerEnvironment

#: Prefix of the labels that only the driver sets.
PREFIX = "osrdyne."
POOL, INSTANCE, KEY, TEMPLATE = (f"{PREFIX}{name}" for name in ("pool", "instance", "key", "template"))

#: Where a worker finds the directory with the broker's address.
CREDENTIALS = "/run/osrdyne"

#: A worker that was asked to stop may take this long beyond the consumer timeout, in seconds: the broker takes a
#: request from a worker that held it longer than that timeout, so more waiting gains nothing.
GRACE_MARGIN_SECONDS = 60.0

#: Of a log without a limit of its own: bytes of a file, and how many files.
LOG_LIMIT = {"max-size": "10m", "max-file": "2"}

#: The places that are checked, by the kind that each must have.
_TABLES, _LISTS = ("Labels", "HostConfig"), ("Env", "HostConfig.Mounts")


@dataclass(frozen=True, slots=True)
class ContainerTemplate:
    """The declared container of a pool. Do not change it; `body` returns the container of one group."""

    pool: PoolSettings
    declared: Mapping[str, Any]
    #: File with the broker's address, on the engine's machine; workers see the directory that it is in.
    worker_amqp_uri_file: Path

    @property
    def image(self) -> str:
        return str(self.declared["Image"])

    @property
    def hash(self) -> str:
        """Short hash of the container's template; other changes restart no group.

        The pool's consumer timeout is part of it, because a running worker uses the one from its start.
        """
        timeout = milliseconds(self.pool.consumer_timeout)
        return keys.digest(json.dumps([self.declared, timeout, str(self.worker_amqp_uri_file)], sort_keys=True))[:16]

    @property
    def grace(self) -> int:
        """Seconds between the stop signal and SIGKILL, both the engine's."""
        return int(self.declared.get("StopTimeout", math.ceil(self.pool.consumer_timeout + GRACE_MARGIN_SECONDS)))

    def labels(self) -> dict[str, str]:
        """Return the labels that all groups of the pool and instance have."""
        return {POOL: self.pool.name, INSTANCE: self.pool.instance}

    @property
    def names_log(self) -> bool:
        """Whether it says where the log goes, so that the engine's default has no effect."""
        return "LogConfig" in (self.declared.get("HostConfig") or {})

    def body(self, key: str, worker_id: str, *, limit_log: bool = False) -> dict[str, Any]:
        """Return the container to create for a group: the declared one, and what the driver fills in.

        `limit_log` is for an engine whose own log has no limit. It counts where the template has no `LogConfig`.

        Three options have another default than the engine's where the template does not name them. `StopTimeout` is
        the grace. `Init` is on, because a process that is number 1 of its container ignores a stop signal that comes
        before it has set a handler. `RestartPolicy` is `unless-stopped`: of those that bring an ended worker back it
        alone never brings back one that was stopped, whatever becomes of the engine meanwhile.
        """
        body = copy.deepcopy(dict(self.declared))
        body["Env"] = [
            *(body.get("Env") or []),
            *(f"{name}={text}" for name, text in self._environment(key, worker_id)),
        ]
        body["Labels"] = {**(body.get("Labels") or {}), **self.labels(), KEY: key, TEMPLATE: self.hash}
        body["StopTimeout"] = self.grace
        host = body["HostConfig"] = dict(body.get("HostConfig") or {})
        host["Mounts"] = [
            *(host.get("Mounts") or []),
            {
                "Type": "bind",
                "Source": str(self.worker_amqp_uri_file.parent),
                "Target": CREDENTIALS,
                "ReadOnly": True,
            },
        ]
        host.setdefault("Init", True)
        if limit_log:
            host.setdefault("LogConfig", {"Type": "json-file", "Config": LOG_LIMIT})
        if not host.get("AutoRemove"):  # the engine takes one or the other
            host.setdefault("RestartPolicy", {"Name": "unless-stopped"})
        return body

    def _environment(self, key: str, worker_id: str) -> list[tuple[str, str]]:
        pool = PoolNames(self.pool.name)
        environment = WorkerEnvironment(
            id=worker_id,
            key=key,
            pool=self.pool.name,
            requests_queue=pool.request_queue(key),
            activity_exchange=pool.activity_exchange,
            # A user who may inspect a container sees its environment: keep the address in the file alone.
            amqp_uri="",
            amqp_uri_file=f"{CREDENTIALS}/{self.worker_amqp_uri_file.name}",
            consumer_timeout_ms=milliseconds(self.pool.consumer_timeout),
        )
        return list(environment.to_environ().items())


def load(path: Path) -> dict[str, Any]:
    """Read a declared container. Raises `SettingsError` with the file, the place in it and what would be right."""
    declared = _read(path)
    for place in (*_TABLES, *_LISTS):
        found, kind = _at(declared, place), dict if place in _TABLES else list
        if found is not None and not isinstance(found, kind):
            raise SettingsError(f"{path}: {place}", f"is not a {'table' if kind is dict else 'list'}")
    image = declared.get("Image")
    if not isinstance(image, str) or not image:
        raise SettingsError(f"{path}: Image", "is missing; name an image that the engine has")
    if wrong := images.problem(image):
        raise SettingsError(f"{path}: Image", wrong)
    grace = declared.get("StopTimeout", 1)
    if not isinstance(grace, int) or isinstance(grace, bool) or grace < 1:
        raise SettingsError(f"{path}: StopTimeout", "is not a whole number of seconds, 1 or more")
    _check_environment(path, _at(declared, "Env") or [])
    _check_labels(path, _at(declared, "Labels") or {})
    _check_mounts(path, _at(declared, "HostConfig.Mounts") or [])
    return declared


def _check_environment(path: Path, variables: list[Any]) -> None:
    for variable in variables:
        # The value is not shown: it may be a credential.
        name = variable.partition("=")[0] if isinstance(variable, str) else ""
        if not name or "\0" in variable:
            raise SettingsError(f"{path}: Env", f'{name!r}: a variable is text, as in "TZ=UTC"')
        if name in VARIABLES:
            raise SettingsError(f"{path}: Env.{name}", "is set for each worker; choose another name")


def _check_labels(path: Path, labels: dict[str, Any]) -> None:
    for name, text in labels.items():
        if name.startswith(PREFIX):
            raise SettingsError(f"{path}: Labels.{name}", f"begins with {PREFIX!r}, which is ours; choose another name")
        if not isinstance(text, str):
            raise SettingsError(f"{path}: Labels.{name}", f"is {text!r}; a label is text")


def _check_mounts(path: Path, mounts: list[Any]) -> None:
    for mount in mounts:
        if not isinstance(mount, dict):
            raise SettingsError(f"{path}: HostConfig.Mounts", "is not a list of tables")
        if mount.get("Target") == CREDENTIALS:
            raise SettingsError(f"{path}: HostConfig.Mounts", f"{CREDENTIALS} is ours; choose another Target")


def _read(path: Path) -> dict[str, Any]:
    readers: dict[str, Callable[[str], Any]] = {".json": foreign_json.read, ".toml": tomllib.loads}
    if path.suffix not in readers:
        raise SettingsError(str(path), "is neither .json nor .toml; the ending says how it is written")
    try:
        declared = readers[path.suffix](path.read_text(encoding="utf-8-sig"))
        json.dumps(declared)
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read: {error.strerror}") from None
    except TypeError:
        raise SettingsError(str(path), "holds a date or a time; write it as text") from None
    except RecursionError:
        raise SettingsError(str(path), "is nested too deeply") from None
    except ValueError as error:
        raise SettingsError(str(path), f"is not {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(declared, dict):
        raise SettingsError(str(path), "holds no table; write the body of the engine's container create")
    return declared


def _at(declared: Mapping[str, Any], place: str) -> Any:
    table, _, name = place.rpartition(".")
    return ((declared.get(table) or {}) if table else declared).get(name)
