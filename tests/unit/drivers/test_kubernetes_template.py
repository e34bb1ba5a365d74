"""The manifests that are declared for the kubernetes driver: what could not work is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from osrdyne.drivers.kubernetes.template import load
from osrdyne_protocol.errors import SettingsError

Manifest = dict[str, Any]


def deployment(**worker: Any) -> Manifest:
    return {"spec": {"template": {"spec": {"containers": [{"name": "worker", "image": "worker:1", **worker}]}}}}


def scaled_object(**changes: Any) -> Manifest:
    metadata = {"protocol": "http", "mode": "QueueLength", "value": "1", "excludeUnacknowledged": "false"}
    trigger = {"type": "rabbitmq", "metadata": metadata, "authenticationRef": {"name": "broker"}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "spec": {"minReplicaCount": 1, "maxReplicaCount": 4, "triggers": [trigger], **changes},
    }


def trigger(**metadata: Any) -> Manifest:
    """A ScaledObject whose trigger has other metadata; None takes one away."""
    made = scaled_object()
    found = {**made["spec"]["triggers"][0]["metadata"], **metadata}
    made["spec"]["triggers"][0]["metadata"] = {name: text for name, text in found.items() if text is not None}
    return made


def write(directory: Path, **files: Manifest) -> Path:
    for name, manifest in files.items():
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(manifest))
    return directory


def refusal(directory: Path, autoscaling: str = "none", container: str | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        load(directory, autoscaling=autoscaling, container=container)
    return str(refused.value)


def test_the_first_container_is_the_worker_unless_another_is_named(tmp_path: Path) -> None:
    made = deployment()
    made["spec"]["template"]["spec"]["containers"].append({"name": "beside", "image": "beside:1"})
    write(tmp_path, deployment=made)
    assert load(tmp_path, autoscaling="none", container=None).container == "worker"
    assert load(tmp_path, autoscaling="none", container="beside").container == "beside"
    assert "no 'third', which driver.container names" in refusal(tmp_path, container="third")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a manifest"),
        ("a: [", "not YAML"),
        ("a: 1\n---\na: 2\n", "one document"),
        ("metadata: {annotations: {since: 2020-01-01}}", "in quotes"),
        ("kind: Pod", "kind: is 'Pod'; this file must hold a Deployment of apps/v1"),
        ("apiVersion: apps/v2", "apiVersion"),
        ("{}", "spec: is missing"),
        ("spec: {template: 1}", "spec.template: is missing"),
        ("spec: {template: {spec: {}}}", "spec.template.spec.containers"),
        ("spec: {template: {spec: {containers: []}}}", "is empty"),
        ("spec: {template: {spec: {containers: [{image: a}]}}}", "spec.template.spec.containers"),
        ("spec: {replicas: 0, template: {spec: {containers: [{name: a}]}}}", "spec.replicas: is 0"),
        ("metadata: {ownerReferences: []}", "metadata.ownerReferences"),
        ("metadata: {labels: {osrdyne/pool: x}}", "osrdyne/pool is the driver's own"),
        ("metadata: {labels: [a]}", "metadata.labels"),
        (
            "spec: {template: {metadata: {annotations: {osrdyne/key: x}}, spec: {}}}",
            "spec.template.metadata.annotations",
        ),
    ],
)
def test_a_deployment_that_cannot_work_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "deployment.yaml").write_text(text)
    reported = refusal(tmp_path)
    assert says in reported
    assert str(tmp_path / "deployment.yaml") in reported


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "deployment.yaml cannot be read: No such file" in refusal(tmp_path)
    write(tmp_path, deployment=deployment())
    assert "hpa.yaml cannot be read" in refusal(tmp_path, "hpa")
    assert "scaledobject.yaml cannot be read" in refusal(tmp_path, "keda")


@pytest.mark.parametrize("name", ["WORKER_ID", "WORKER_KEY", "WORKER_AMQP_URI", "WORKER_CONSUMER_TIMEOUT"])
def test_a_variable_that_would_hide_one_of_ours_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, deployment=deployment(env=[{"name": "A"}, {"name": name, "value": "secret"}]))
    reported = refusal(tmp_path)
    assert f"spec.template.spec.containers[0].env: {name} is set for each worker" in reported
    assert "secret" not in reported


def test_an_address_file_in_a_volume_is_the_templates_to_name(tmp_path: Path) -> None:
    write(tmp_path, deployment=deployment(env=[{"name": "WORKER_AMQP_URI_FILE", "value": "/run/broker/uri"}]))
    assert load(tmp_path, autoscaling="none", container=None).scaler is None


def test_a_replica_count_is_not_a_mistake_where_an_autoscaler_owns_it(tmp_path: Path) -> None:
    made = deployment()
    made["spec"]["replicas"] = 0
    write(tmp_path, deployment=made, hpa={"spec": {"minReplicas": 1, "maxReplicas": 3}})
    assert load(tmp_path, autoscaling="hpa", container=None).scaler is not None


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (scaled_object(minReplicaCount=0), "spec.minReplicaCount: must be given, and be 1 or more"),
        (scaled_object(minReplicaCount=True), "spec.minReplicaCount"),
        ({"spec": {"triggers": []}}, "spec.minReplicaCount"),
        (scaled_object(idleReplicaCount=0), "spec.idleReplicaCount"),
        (scaled_object(triggers=[]), "none of type rabbitmq"),
        (scaled_object(triggers=[{"type": "cpu", "metadata": {}}]), "none of type rabbitmq"),
        (scaled_object(triggers=None), "spec.triggers"),
        (trigger(excludeUnacknowledged=None), "metadata.excludeUnacknowledged: must be"),
        (trigger(excludeUnacknowledged="true"), 'must be "false"'),
        (trigger(protocol="amqp"), 'metadata.protocol: must be "http"'),
        (trigger(protocol=None), "metadata.protocol"),
        (trigger(mode="MessageRate"), 'metadata.mode: must be "QueueLength"'),
        (trigger(queueName="mine"), "filled in for each key"),
        (trigger(useRegex="true"), "filled in for each key"),
        (trigger(host="http://user:verysecret@broker:15672/vhost"), "TriggerAuthentication"),
        ({**scaled_object(), "kind": "ScaledJob"}, "must hold a ScaledObject"),
        (
            {**scaled_object(), "metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "0"}}},
            "paused-replicas",
        ),
    ],
)
def test_an_autoscaler_that_could_take_a_busy_worker_away_is_refused(tmp_path: Path, made: Manifest, says: str) -> None:
    write(tmp_path, deployment=deployment(), scaledobject=made)
    reported = refusal(tmp_path, "keda")
    assert says in reported
    assert "verysecret" not in reported


def test_a_trigger_without_authentication_is_refused(tmp_path: Path) -> None:
    made = scaled_object()
    del made["spec"]["triggers"][0]["authenticationRef"]
    write(tmp_path, deployment=deployment(), scaledobject=made)
    assert "spec.triggers[0]: has no authenticationRef" in refusal(tmp_path, "keda")


def test_a_trigger_by_rate_is_taken_beside_one_that_counts_messages_in_hand(tmp_path: Path) -> None:
    [counting] = scaled_object()["spec"]["triggers"]
    by_rate = {**counting, "metadata": {"protocol": "http", "mode": "MessageRate", "value": "100"}}
    for triggers in ([counting, by_rate], [by_rate, counting]):
        write(tmp_path, deployment=deployment(), scaledobject=scaled_object(triggers=triggers))
        assert load(tmp_path, autoscaling="keda", container=None).scaler is not None

    write(tmp_path, deployment=deployment(), scaledobject=scaled_object(triggers=[by_rate, by_rate]))
    assert 'spec.triggers[0].metadata.mode: must be "QueueLength" in one trigger' in refusal(tmp_path, "keda")
    exposed = {**by_rate, "metadata": {**by_rate["metadata"], "host": "http://u:secret@broker"}}
    write(tmp_path, deployment=deployment(), scaledobject=scaled_object(triggers=[counting, exposed]))
    assert "spec.triggers[1].metadata.host" in refusal(tmp_path, "keda")


def test_an_image_that_no_engine_takes_is_refused(tmp_path: Path) -> None:
    made = deployment()
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/Core:1"
    write(tmp_path, deployment=made)
    assert "containers[0].image: 'registry.example/Core:1' has upper-case letters" in refusal(tmp_path)


def test_a_scaled_object_that_keeps_the_promises_is_taken(tmp_path: Path) -> None:
    write(tmp_path, deployment=deployment(), scaledobject=scaled_object())
    assert load(tmp_path, autoscaling="keda", container=None).scaler == scaled_object()


def test_an_hpa_that_goes_to_zero_is_refused(tmp_path: Path) -> None:
    write(tmp_path, deployment=deployment(), hpa={"spec": {"minReplicas": 0}})
    assert "spec.minReplicas: must be 1 or more" in refusal(tmp_path, "hpa")
