"""The manifests that infrastructure code declares for worker groups, read from a directory and checked once.

A directory like a mounted ConfigMap: `deployment.yaml`, and `hpa.yaml` or `scaledobject.yaml` beside it. A manifest
that could not work, or would break a promise of the daemon, is refused here with the place in the file, before any
start. The promises: an active key always has a worker, and no worker that holds a message is scaled away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from osrdyne_pool import images
from osrdyne_protocol import worker_environment
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.console.imports import extra

with extra("osrdyne[kubernetes]"):
    import yaml  # type: ignore[import-untyped]

Manifest = dict[str, Any]

Checked = TypeVar("Checked")

#: Prefix of the labels and annotations that only the driver sets.
PREFIX = "osrdyne/"

#: Variables that the driver sets for each worker.
WORKER_VARIABLES = frozenset(
    worker_environment.WorkerEnvironment("", "", "", "", "", "", consumer_timeout_ms=1).to_environ()
)

#: Allowed fields in the metadata of a template: the name is replaced, the others are kept.
_METADATA = frozenset({"name", "namespace", "labels", "annotations"})

#: Autoscaling -> file, kind and API version of the manifest that it needs beside the Deployment.
SCALERS = {
    "hpa": ("hpa.yaml", "HorizontalPodAutoscaler", "autoscaling/v2"),
    "keda": ("scaledobject.yaml", "ScaledObject", "keda.sh/v1alpha1"),
}


@dataclass(frozen=True, slots=True)
class Templates:
    """The declared and checked manifests. Do not change them."""

    deployment: Manifest
    #: `none`, `hpa` or `keda`.
    autoscaling: str
    #: The HorizontalPodAutoscaler or ScaledObject; None without autoscaling.
    scaler: Manifest | None
    #: Name of the container that is the worker.
    container: str


def load(directory: Path, *, autoscaling: str, container: str | None) -> Templates:
    """Read the templates of a pool. Raises `SettingsError` with the file, the place in it and what would be right."""
    file = directory / "deployment.yaml"
    deployment = _read(file)
    chosen = _check(file, _check_deployment, deployment, container, autoscaling)
    scaler = None
    if autoscaling in SCALERS:
        name, kind, version = SCALERS[autoscaling]
        scaler = _read(directory / name)
        _check(directory / name, _check_scaler, scaler, kind, version)
    return Templates(deployment, autoscaling, scaler, chosen)


class _Mistake(Exception):
    """A place in a manifest, and what is wrong there."""


def _read(file: Path) -> Manifest:
    try:
        manifest = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
        json.dumps(manifest)
    except OSError as error:
        raise SettingsError("driver.template_directory", f"{file} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(str(file), f"is not YAML with one document: {' '.join(str(error).split())}") from error
    except TypeError as error:
        raise SettingsError(
            str(file), f"holds what JSON cannot say ({error}); put dates and the like in quotes"
        ) from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(file), f"cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise SettingsError(str(file), "is not a manifest; give apiVersion, kind, metadata and spec")
    return manifest


def _check(file: Path, check: Callable[..., Checked], *arguments: Any) -> Checked:
    try:
        return check(*arguments)
    except _Mistake as error:
        where, problem = error.args
        raise SettingsError(f"{file}: {where}", problem) from None


def _check_deployment(manifest: Manifest, container: str | None, autoscaling: str) -> str:
    """Return the name of the worker's container."""
    _check_head(manifest, "Deployment", "apps/v1")
    spec = _table(manifest, "spec", "spec")
    pod = _table(_table(spec, "template", "spec.template"), "spec", "spec.template.spec")
    _check_metadata(spec["template"], "spec.template.metadata")
    containers = pod.get("containers")
    if not isinstance(containers, list) or not all(
        isinstance(entry, dict) and entry.get("name") for entry in containers
    ):
        raise _Mistake(
            "spec.template.spec.containers", "is not a list of containers with names; give the worker's container"
        )
    names = [str(entry["name"]) for entry in containers]
    if not names:
        raise _Mistake("spec.template.spec.containers", "is empty; give the worker's container")
    if container is not None and container not in names:
        raise _Mistake(
            "spec.template.spec.containers", f"has no {container!r}, which driver.container names, but {names}"
        )
    chosen = container or names[0]
    for index, entry in enumerate(containers):
        if entry["name"] == chosen:
            _check_environment(entry, f"spec.template.spec.containers[{index}].env")
        if (image := entry.get("image")) is not None and (wrong := images.problem(str(image))):
            raise _Mistake(f"spec.template.spec.containers[{index}].image", wrong)
    if autoscaling == "none" and spec.get("replicas", 1) == 0:
        raise _Mistake("spec.replicas", "is 0, so that nothing would ever be answered; give 1 or more, or leave it out")
    return chosen


def _check_environment(container: Manifest, where: str) -> None:
    variables = container.get("env") or []
    if not isinstance(variables, list) or not all(isinstance(variable, dict) for variable in variables):
        raise _Mistake(where, "is not a list of variables with name and value")
    for variable in variables:
        if variable.get("name") in WORKER_VARIABLES:
            raise _Mistake(where, f"{variable['name']} is set for each worker; choose another name")


def _check_scaler(manifest: Manifest, kind: str, version: str) -> None:
    _check_head(manifest, kind, version)
    spec = _table(manifest, "spec", "spec")
    if kind == "ScaledObject":
        _check_scaled_object(manifest, spec)
    elif not _at_least_one(spec.get("minReplicas", 1)):
        raise _Mistake("spec.minReplicas", "must be 1 or more: a key that is active always has a worker")


def _check_scaled_object(manifest: Manifest, spec: Manifest) -> None:
    if not _at_least_one(spec.get("minReplicaCount")):
        raise _Mistake(
            "spec.minReplicaCount",
            "must be given, and be 1 or more (KEDA's default is 0): a key that is active always has a worker",
        )
    if "idleReplicaCount" in spec:
        raise _Mistake("spec.idleReplicaCount", "would take an active key's last worker away; leave it out")
    paused = "autoscaling.keda.sh/paused-replicas"
    if paused in ((manifest.get("metadata") or {}).get("annotations") or {}):
        raise _Mistake("metadata.annotations", f"{paused} would fix the number of workers of every key; leave it out")
    triggers = spec.get("triggers")
    if not isinstance(triggers, list) or not all(isinstance(trigger, dict) for trigger in triggers):
        raise _Mistake("spec.triggers", "is not a list of triggers; give one of type rabbitmq")
    on_rabbitmq = [
        (f"spec.triggers[{index}]", trigger)
        for index, trigger in enumerate(triggers)
        if trigger.get("type") == "rabbitmq"
    ]
    if not on_rabbitmq:
        raise _Mistake("spec.triggers", "has none of type rabbitmq, so that nothing would scale by a key's queue")
    for where, trigger in on_rabbitmq:
        _check_trigger(trigger, where)
    # The largest number that a trigger asks for counts: one trigger that counts held messages is enough.
    missing = [_missing_to_count_held(trigger["metadata"]) for _, trigger in on_rabbitmq]
    if all(missing):
        where, wanted = on_rabbitmq[0][0], missing[0]
        raise _Mistake(
            f"{where}.metadata.{wanted}",
            f'must be "{_COUNTS[str(wanted)]}" in one trigger: else messages in hand do not count, '
            "and busy workers are taken away",
        )


#: Metadata of a trigger that also counts the messages that workers hold.
_COUNTS = {"protocol": "http", "mode": "QueueLength", "excludeUnacknowledged": "false"}


def _missing_to_count_held(metadata: Manifest) -> str | None:
    """Return the first name in `_COUNTS` that a trigger lacks; None when it counts the messages that workers hold."""
    return next((name for name, value in _COUNTS.items() if metadata.get(name) != value), None)


def _check_trigger(trigger: Manifest, where: str) -> None:
    """Check that no credential is in a readable place, and that the driver can fill in the rest."""
    metadata = _table(trigger, "metadata", f"{where}.metadata")
    if "useRegex" in metadata or "queueName" in metadata:
        raise _Mistake(f"{where}.metadata", "queueName and useRegex are filled in for each key; leave them out")
    if "@" in urlsplit(str(metadata.get("host", ""))).netloc:
        raise _Mistake(
            f"{where}.metadata.host",
            "holds a user and a password, readable in the cluster; put it into a Secret and name its "
            "TriggerAuthentication in authenticationRef",
        )
    if "authenticationRef" not in trigger and "hostFromEnv" not in metadata:
        raise _Mistake(where, "has no authenticationRef; name a TriggerAuthentication that gives the broker's address")


def _check_head(manifest: Manifest, kind: str, version: str) -> None:
    for name, value in (("apiVersion", version), ("kind", kind)):
        if manifest.get(name, value) != value:
            raise _Mistake(name, f"is {manifest[name]!r}; this file must hold a {kind} of {version}")
    _check_metadata(manifest, "metadata")


def _check_metadata(owner: Manifest, where: str) -> None:
    metadata = owner.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise _Mistake(where, "is not a table of labels and annotations")
    for name in metadata:
        if name not in _METADATA:
            raise _Mistake(f"{where}.{name}", "cannot be in a template; keep labels and annotations only")
    for kind in ("labels", "annotations"):
        found = metadata.get(kind) or {}
        if not isinstance(found, dict):
            raise _Mistake(f"{where}.{kind}", "is not a table of names and texts")
        for name in found:
            if str(name).startswith(PREFIX):
                raise _Mistake(f"{where}.{kind}", f"{name} is the driver's own; choose another name")


def _table(owner: Mapping[str, Any], name: str, where: str) -> Manifest:
    found = owner.get(name)
    if not isinstance(found, dict):
        raise _Mistake(where, "is missing, or is not a table")
    return found


def _at_least_one(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and count >= 1
