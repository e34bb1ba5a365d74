"""The manifests that are applied for one key: the declared ones with name, labels, key and environment. Pure.

A key is any text. Annotations and the environment hold the key itself; names and labels hold hashes of it.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osrdyne.drivers.kubernetes.template import PREFIX, Manifest, Templates
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import milliseconds
from osrdyne_protocol import keys, names
from osrdyne_protocol.worker_environment import WORKER_AMQP_URI, WORKER_ID, WorkerEnvironment

#: A worker that was asked to stop may take this long beyond the consumer timeout, in seconds: the broker takes a
#: request from a worker that held it longer than that timeout, so more waiting gains nothing.
GRACE_MARGIN_SECONDS = 60.0

POOL_LABEL = f"{PREFIX}pool"
INSTANCE_LABEL = f"{PREFIX}instance"
KEY_HASH_LABEL = f"{PREFIX}key-hash"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
KEY_ANNOTATION = f"{PREFIX}key"
TEMPLATE_ANNOTATION = f"{PREFIX}template"

#: Value of the label `app.kubernetes.io/managed-by`, and the name under which we own fields.
MANAGER = "osrdyne"

#: Kubernetes, "Labels and Selectors": what the value of a label may be.
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def label_value(text: str) -> str:
    """Return a text as the value of a label: itself where it is one, else a hash of it."""
    return text if _LABEL_VALUE.fullmatch(text) else keys.digest(text)[:32]


def key_hash(key: str) -> str:
    """Return what stands for a key in labels."""
    return keys.digest(key)[:32]


def key_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the key that an object of ours belongs to; None for an object whose key does not fit its labels."""
    key = (metadata.get("annotations") or {}).get(KEY_ANNOTATION)
    if not isinstance(key, str) or (metadata.get("labels") or {}).get(KEY_HASH_LABEL) != key_hash(key):
        return None
    return key


@dataclass(frozen=True, slots=True)
class Manifests:
    """Renders the manifests of each key of a pool."""

    pool: PoolSettings
    templates: Templates
    #: Secret in the namespace of the workers, and the key in it that holds their AMQP address.
    secret: str
    secret_key: str
    #: Hash of what a group is started from.
    template: str = field(init=False)
    #: Hash of what its autoscaler is made from; empty without autoscaling.
    scaler_template: str = field(init=False)

    def __post_init__(self) -> None:
        # Hash the declared manifests, not the rendered ones: a later daemon that renders more restarts no worker.
        what = [
            self._declared(),
            self.templates.autoscaling,
            self.templates.container,
            [self.secret, self.secret_key],
            milliseconds(self.pool.consumer_timeout),
        ]
        scaler = self.templates.scaler
        object.__setattr__(self, "template", _hash(what))
        object.__setattr__(self, "scaler_template", "" if scaler is None else _hash(scaler))

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which all groups of this pool and instance are found."""
        return {POOL_LABEL: self.pool.name, INSTANCE_LABEL: label_value(self.pool.instance)}

    def name(self, key: str) -> str:
        """Return the name of a group's Deployment and of its autoscaler."""
        return names.engine_name(self.pool.name, self.pool.instance, key)

    def deployment(self, key: str) -> Manifest:
        """Return the Deployment of a key."""
        made = self._declared()
        mark = {**self.labels, KEY_HASH_LABEL: key_hash(key)}
        labels = {**mark, MANAGED_BY_LABEL: MANAGER}
        annotations = {KEY_ANNOTATION: key, TEMPLATE_ANNOTATION: self.template}
        made.update(apiVersion="apps/v1", kind="Deployment", metadata=_metadata(made, labels, annotations))
        made["metadata"]["name"] = self.name(key)
        spec = made["spec"]
        spec["selector"] = {"matchLabels": mark}
        pod = spec["template"]
        pod["metadata"] = _metadata(pod, labels, annotations)
        grace = math.ceil(self.pool.consumer_timeout + GRACE_MARGIN_SECONDS)
        pod["spec"].setdefault("terminationGracePeriodSeconds", grace)
        for container in pod["spec"]["containers"]:
            if container["name"] == self.templates.container:
                # First, so that what the template sets may refer to them as $(WORKER_KEY).
                container["env"] = [*self._environment(key), *(container.get("env") or [])]
        return made

    def scaler(self, key: str, owner: str, owner_uid: str) -> Manifest:
        """Return the autoscaler of a key's Deployment, which is `owner`. Raises ValueError where none was declared.

        The Deployment owns it and waits for it at its own deletion, so that none is left for the next Deployment.
        """
        if self.templates.scaler is None:
            raise ValueError("no autoscaler was declared")
        made = copy.deepcopy(self.templates.scaler)
        labels = {**self.labels, KEY_HASH_LABEL: key_hash(key), MANAGED_BY_LABEL: MANAGER}
        annotations = {KEY_ANNOTATION: key, TEMPLATE_ANNOTATION: self.scaler_template}
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner}
        made["metadata"] = {
            **_metadata(made, labels, annotations),
            "name": owner,
            "ownerReferences": [{**target, "uid": owner_uid, "controller": False, "blockOwnerDeletion": True}],
        }
        spec = made["spec"]
        spec["scaleTargetRef"] = {**(spec.get("scaleTargetRef") or {}), **target}
        if self.templates.autoscaling == "keda":
            made.update(apiVersion="keda.sh/v1alpha1", kind="ScaledObject")
            queue = names.PoolNames(self.pool.name).request_queue(key)
            for trigger in spec["triggers"]:
                if trigger.get("type") == "rabbitmq":
                    trigger["metadata"].update(_watched(queue))
        else:
            made.update(apiVersion="autoscaling/v2", kind="HorizontalPodAutoscaler")
        return made

    def _declared(self) -> Manifest:
        """Return a copy of the declared Deployment, without the fields that the autoscaler owns."""
        made = copy.deepcopy(self.templates.deployment)
        made.pop("status", None)
        if self.templates.autoscaling != "none":
            made["spec"].pop("replicas", None)
        return made

    def _environment(self, key: str) -> list[Manifest]:
        pool = names.PoolNames(self.pool.name)
        given = WorkerEnvironment(
            id="",
            key=key,
            pool=self.pool.name,
            requests_queue=pool.request_queue(key),
            activity_exchange=pool.activity_exchange,
            amqp_uri="",
            consumer_timeout_ms=milliseconds(self.pool.consumer_timeout),
        ).to_environ()
        sources: dict[str, Manifest] = {
            WORKER_ID: {"fieldRef": {"fieldPath": "metadata.name"}},
            WORKER_AMQP_URI: {"secretKeyRef": {"name": self.secret, "key": self.secret_key}},
        }
        return [
            {"name": name, "valueFrom": sources[name]} if name in sources else {"name": name, "value": _literal(text)}
            for name, text in given.items()
        ]


def _metadata(owner: Manifest, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Manifest:
    declared = owner.get("metadata") or {}
    kept = {"namespace": declared["namespace"]} if declared.get("namespace") else {}
    return {
        **kept,
        "labels": {**(declared.get("labels") or {}), **labels},
        "annotations": {**(declared.get("annotations") or {}), **annotations},
    }


def _literal(text: str) -> str:
    """Return a text that a container gets as it is: `$(NAME)` in a variable would be replaced."""
    return text.replace("$", "$$")


def _watched(queue: str) -> Manifest:
    """Return the metadata that names a queue to KEDA's rabbitmq scaler.

    It writes a space in a queue's name as `+`, which the broker takes literally in a path but not in a query: such a
    name goes there, as a regular expression that only it matches.
    """
    if " " not in queue:
        return {"queueName": queue}
    return {"queueName": f"^{re.escape(queue)}$", "useRegex": "true"}


def _hash(what: object) -> str:
    return keys.digest(json.dumps(what, sort_keys=True))[:16]
