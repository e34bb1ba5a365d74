"""What the kubernetes driver applies for a key: the declared manifest, and only what is the driver's filled in."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from osrdyne.drivers.kubernetes.api import as_yaml
from osrdyne.drivers.kubernetes.manifests import Manifests, key_of
from osrdyne.drivers.kubernetes.template import WORKER_VARIABLES, Templates
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.names import PoolNames, engine_name
from tests.hard_keys import KEYS

#: Everything here is to pass through as it is.
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"labels": {"team": "rail"}, "annotations": {"note": "kept"}},
    "spec": {
        "replicas": 3,
        "strategy": {"type": "Recreate"},
        "template": {
            "metadata": {"labels": {"tier": "back"}, "annotations": {"scrape": "yes"}},
            "spec": {
                "serviceAccountName": "worker",
                "nodeSelector": {"disk": "fast"},
                "securityContext": {"runAsNonRoot": True},
                "volumes": [{"name": "model", "emptyDir": {}}],
                "containers": [
                    {"name": "beside", "image": "beside:1"},
                    {
                        "name": "worker",
                        "image": "worker:1",
                        "env": [{"name": "MODEL", "value": "/model"}],
                        "envFrom": [{"configMapRef": {"name": "worker"}}],
                        "readinessProbe": {"exec": {"command": ["true"]}},
                        "resources": {"limits": {"memory": "1Gi"}},
                        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
                    },
                ],
            },
        },
    },
}
TRIGGER = {"type": "rabbitmq", "metadata": {"protocol": "http"}, "authenticationRef": {"name": "broker"}}
SCALED_OBJECT: dict[str, Any] = {
    "metadata": {"labels": {"team": "rail"}},
    "spec": {
        "minReplicaCount": 1,
        "scaleTargetRef": {"envSourceContainerName": "worker"},
        "triggers": [{"type": "cpu", "metadata": {"value": "80"}}, TRIGGER],
    },
}


def manifests(autoscaling: str = "none", *, instance: str = "one", **changes: Any) -> Manifests:
    scaler = {"none": None, "hpa": {"spec": {"maxReplicas": 4}}, "keda": SCALED_OBJECT}[autoscaling]
    templates = Templates(copy.deepcopy(DEPLOYMENT), autoscaling, copy.deepcopy(scaler), "worker")
    values = {"pool": PoolSettings("echo", instance), "templates": templates, "secret": "worker", "secret_key": "uri"}
    return Manifests(**{**values, **changes})


def worker_of(deployment: dict[str, Any]) -> dict[str, Any]:
    return dict(deployment["spec"]["template"]["spec"]["containers"][1])


def test_all_that_was_declared_passes_through() -> None:
    made = manifests().deployment("a")
    assert made["metadata"]["labels"]["team"] == "rail"
    assert made["metadata"]["annotations"]["note"] == "kept"
    pod = made["spec"]["template"]
    assert pod["metadata"]["labels"]["tier"] == "back"
    assert pod["metadata"]["annotations"]["scrape"] == "yes"
    declared = DEPLOYMENT["spec"]["template"]["spec"]
    assert made["spec"]["strategy"] == {"type": "Recreate"}
    assert {name: pod["spec"][name] for name in declared if name != "containers"} == {
        name: text for name, text in declared.items() if name != "containers"
    }
    assert pod["spec"]["containers"][0] == declared["containers"][0]
    worker = worker_of(made)
    assert worker["env"][-1] == {"name": "MODEL", "value": "/model"}
    assert {**worker, "env": declared["containers"][1]["env"]} == declared["containers"][1]


@pytest.mark.parametrize("key", [*KEYS, "$(WORKER_ID) $$x"])
def test_a_worker_gets_its_variables_and_the_address_from_the_secret(key: str) -> None:
    environment = {variable["name"]: variable for variable in worker_of(manifests().deployment(key))["env"]}
    assert environment.keys() == WORKER_VARIABLES | {"MODEL"}
    assert environment["WORKER_ID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment["WORKER_AMQP_URI"]["valueFrom"] == {"secretKeyRef": {"name": "worker", "key": "uri"}}
    # A doubled dollar sign is one in the container (Kubernetes, "Define Dependent Environment Variables").
    assert environment["WORKER_KEY"]["value"].replace("$$", "$") == key
    assert environment["WORKER_REQUESTS_QUEUE"]["value"].replace("$$", "$") == PoolNames("echo").request_queue(key)
    assert environment["WORKER_POOL"]["value"] == "echo"
    assert environment["WORKER_CONSUMER_TIMEOUT"]["value"] == "1800000"


def test_a_key_cannot_refer_to_a_variable() -> None:
    environment = {
        variable["name"]: variable.get("value") for variable in worker_of(manifests().deployment("$(HOME)"))["env"]
    }
    assert environment["WORKER_KEY"] == "$$(HOME)"


@pytest.mark.parametrize("key", KEYS)
def test_a_group_is_found_by_its_labels_and_its_key_is_read_back(key: str) -> None:
    made = manifests().deployment(key)
    assert made["metadata"]["name"] == engine_name("echo", "one", key)
    selector = made["spec"]["selector"]["matchLabels"]
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        assert key_of(metadata) == key
        assert metadata["labels"].items() >= selector.items()
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "osrdyne"
        for text in metadata["labels"].values():
            assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,61}[A-Za-z0-9]|[A-Za-z0-9]", text)
    assert selector.items() >= manifests().labels.items()


def test_no_two_keys_share_a_selector() -> None:
    selectors = {json.dumps(manifests().deployment(key)["spec"]["selector"]) for key in KEYS}
    assert len(selectors) == len(KEYS)


def test_an_instance_of_any_name_has_a_label_of_its_own() -> None:
    names = ["one", "One", "a b", "é", "x" * 200, "-a", ""]
    labels = [manifests(instance=name).labels["osrdyne/instance"] for name in names]
    assert len(set(labels)) == len(names)
    assert labels[0] == "one"
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label) for label in labels)


def test_metadata_whose_key_does_not_fit_its_labels_is_not_ours() -> None:
    metadata = manifests().deployment("a")["metadata"]
    metadata["annotations"]["osrdyne/key"] = "b"
    assert key_of(metadata) is None
    assert key_of({}) is None


def test_the_replica_count_is_the_templates_or_the_autoscalers() -> None:
    assert manifests().deployment("a")["spec"]["replicas"] == 3
    assert "replicas" not in manifests("hpa").deployment("a")["spec"]
    assert "replicas" not in manifests("keda").deployment("a")["spec"]


def test_the_grace_is_the_consumer_timeout_and_a_minute_unless_the_template_names_one() -> None:
    made = manifests(pool=PoolSettings("echo", consumer_timeout=90.5))
    assert made.deployment("a")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 151
    made.templates.deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 5
    assert made.deployment("a")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 5


def test_a_scaled_object_targets_the_deployment_and_watches_the_keys_queue() -> None:
    name = engine_name("echo", "one", "a/b")
    made = manifests("keda").scaler("a/b", name, "uid-1")
    assert (made["apiVersion"], made["kind"], made["metadata"]["name"]) == ("keda.sh/v1alpha1", "ScaledObject", name)
    assert made["metadata"]["labels"]["team"] == "rail"
    assert key_of(made["metadata"]) == "a/b"
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": name,
            "uid": "uid-1",
            "controller": False,
            "blockOwnerDeletion": True,
        }
    ]
    assert made["spec"]["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": name,
        "envSourceContainerName": "worker",
    }
    assert made["spec"]["triggers"][0] == {"type": "cpu", "metadata": {"value": "80"}}
    assert made["spec"]["triggers"][1]["metadata"] == {"protocol": "http", "queueName": "echo-req-a/b"}
    assert made["spec"]["triggers"][1]["authenticationRef"] == {"name": "broker"}


def test_a_queue_with_a_space_is_found_as_an_expression_that_only_it_matches() -> None:
    metadata = manifests("keda").scaler("a b.*", "echo-ab", "uid-1")["spec"]["triggers"][1]["metadata"]
    assert metadata["useRegex"] == "true"
    assert re.search(metadata["queueName"], "echo-req-a b.*")
    assert not re.search(metadata["queueName"], "echo-req-a b.*c")
    assert not re.search(metadata["queueName"], "echo-req-a bcd")


def test_an_hpa_targets_the_deployment() -> None:
    made = manifests("hpa").scaler("a", "echo-a-of-an-earlier-version", "uid-1")
    assert (made["apiVersion"], made["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert made["spec"] == {
        "maxReplicas": 4,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "echo-a-of-an-earlier-version"},
    }
    assert made["metadata"]["name"] == "echo-a-of-an-earlier-version"


def test_rendering_changes_nothing_of_what_was_declared() -> None:
    made = manifests("keda")
    for key in ("a", "b"):
        made.deployment(key)
        made.scaler(key, f"echo-{key}", "uid")
    assert made.templates.deployment == DEPLOYMENT
    assert made.templates.scaler == SCALED_OBJECT


def test_the_hash_is_that_of_what_a_worker_is_started_from() -> None:
    plain = manifests().template
    assert manifests().template == plain
    assert manifests().deployment("a")["metadata"]["annotations"]["osrdyne/template"] == plain
    for other in (
        manifests(secret="other"),
        manifests(secret_key="other"),
        manifests(pool=PoolSettings("echo", "one", consumer_timeout=1.0)),
        manifests("hpa"),
    ):
        assert other.template != plain
    changed = manifests()
    changed.templates.deployment["spec"]["template"]["spec"]["containers"][1]["image"] = "worker:2"
    assert Manifests(changed.pool, changed.templates, "worker", "uri").template != plain


def test_another_autoscaler_of_the_same_kind_rolls_no_worker() -> None:
    before, after = manifests("keda"), manifests("keda")
    assert after.templates.scaler is not None
    after.templates.scaler["spec"]["maxReplicaCount"] = 9
    after = Manifests(after.pool, after.templates, "worker", "uri")
    assert after.template == before.template
    assert after.scaler_template != before.scaler_template
    # Nor does another count of replicas, where that is the autoscaler's.
    after.templates.deployment["spec"]["replicas"] = 7
    assert Manifests(after.pool, after.templates, "worker", "uri").template == before.template


@pytest.mark.parametrize("text", [*KEYS, "\U0001f686 \x7f \x85 \u2028 \ufeff \uffff", "\x01\x1f", "'\"\\: #{}[]"])
def test_what_is_sent_as_yaml_reads_the_same_as_json_and_holds_no_surrogate_pairs(text: str) -> None:
    sent = as_yaml({"a": text})
    assert json.loads(sent) == {"a": text}
    assert "\\ud83d" not in sent
    # YAML 1.2, "Character Set": all else must be escaped.
    assert all(character == "\x85" or "\x20" <= character <= "\x7e" or character >= "\xa0" for character in sent)
    assert not set(sent) & set("\u2028\ufeff\uffff")
