"""What the kubernetes driver starts workers from: the files of its template directory, made from the configuration.

Pure. A worker gets no rights on the cluster and none on its node that it does not ask for, and finds its credential in
a file too, so that it can follow a changed password.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from osrdyne_infra.cluster.settings import WorkerSettings
from osrdyne_infra.jobs.settings import ADDRESS_FILE, FOLDER

Manifest = dict[str, Any]

#: User and group of pods that the stack declares: one without a name or rights on any machine.
NOBODY = 65532
#: Where a worker's container finds its Secret, and the key in it that holds the address.
CREDENTIALS = "/run/osrdyne"
SECRET_KEY = "amqp-uri"  # noqa: S105 - the name of what holds it


def worker_secret(pool: str) -> str:
    """Return the name of the Secret with the workers' address."""
    return f"{pool}-worker"


def jobs_secret(pool: str) -> str:
    """Return the name of the Secret with the address of the pool's jobs, for workers and redo."""
    return f"{pool}-jobs"


def broker_access(pool: str) -> str:
    """Return the name of the TriggerAuthentication by which KEDA looks at the broker."""
    return f"{pool}-broker"


def templates(pool: str, worker: WorkerSettings, *, jobs: bool) -> dict[str, str]:
    """Return the text of each file, by its name. With `jobs`, workers find the address of their database in a file."""
    found = {"deployment.yaml": _deployment(pool, worker, jobs=jobs)}
    if worker.autoscaling == "hpa":
        found["hpa.yaml"] = _hpa(worker)
    if worker.autoscaling == "keda":
        found["scaledobject.yaml"] = _scaled_object(pool, worker)
    return {name: yaml.safe_dump(manifest, sort_keys=False) for name, manifest in found.items()}


def merged(ours: Any, theirs: Any) -> Any:
    """Return our value with another over it: tables are joined, lists put one after the other, all else replaced."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        joined = {name: merged(ours[name], theirs[name]) if name in theirs else ours[name] for name in ours}
        return {**joined, **{name: value for name, value in theirs.items() if name not in ours}}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*ours, *theirs]
    return copy.deepcopy(theirs)


def _deployment(pool: str, worker: WorkerSettings, *, jobs: bool) -> Manifest:
    secrets = {"broker": worker_secret(pool), **({"jobs": jobs_secret(pool)} if jobs else {})}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "fsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [merged(_container(worker, jobs=jobs), dict(worker.container))],
        "volumes": [
            {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}} for name, secret in secrets.items()
        ],
    }
    replicas = {"replicas": worker.replicas} if worker.autoscaling == "none" else {}
    spec = {**replicas, "template": {"spec": merged(pod, dict(worker.pod))}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}


def _container(worker: WorkerSettings, *, jobs: bool) -> Manifest:
    ours = {"WORKER_AMQP_URI_FILE": f"{CREDENTIALS}/{SECRET_KEY}"}
    folders = {"broker": CREDENTIALS}
    if jobs:
        # The settings of a worker may name another one.
        ours |= {"OSRDYNE_JOBS_DATABASE_FILE": f"{FOLDER}/{ADDRESS_FILE}"}
        folders |= {"jobs": FOLDER}
    given: Manifest = {
        "name": "worker",
        "image": worker.image,
        "imagePullPolicy": worker.pull_policy,
        "command": list(worker.command),
        "args": list(worker.args),
        "resources": {kind: dict(amounts) for kind, amounts in worker.resources.items()},
    }
    return {
        **{name: value for name, value in given.items() if value},
        "env": [{"name": name, "value": text} for name, text in {**ours, **worker.env}.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path in folders.items()],
    }


def _hpa(worker: WorkerSettings) -> Manifest:
    target = {"type": "Utilization", "averageUtilization": worker.cpu_percent}
    spec = {
        "minReplicas": 1,
        "maxReplicas": worker.max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": merged(spec, dict(worker.scaler)),
    }


def _scaled_object(pool: str, worker: WorkerSettings) -> Manifest:
    trigger = {
        "type": "rabbitmq",
        "metadata": {
            # The management API counts messages in hand, which keep a busy worker from being taken away.
            "protocol": "http",
            "mode": "QueueLength",
            "value": str(worker.messages_per_worker),
            "excludeUnacknowledged": "false",
        },
        "authenticationRef": {"name": broker_access(pool)},
    }
    spec = {"minReplicaCount": 1, "maxReplicaCount": worker.max_replicas, "triggers": [trigger]}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": merged(spec, dict(worker.scaler))}
