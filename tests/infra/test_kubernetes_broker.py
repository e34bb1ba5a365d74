"""What a stack declares that deploys a broker. The StatefulSet runs in test_deployed_broker.py; no operator runs in any
test: the object for it is compared with what the RabbitMQ Cluster Operator asks for.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from osrdyne_infra.broker import statefulset
from tests.infra.declaring import broker_settings
from tests.infra.declaring import deployed as broker

pytestmark = [pytest.mark.xdist_group("declared")]


def volumes(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """What is mounted, by its path."""
    named = {volume["name"]: volume for volume in spec["volumes"]}
    return {mount["mountPath"]: named.get(mount["name"], mount) for mount in container["volumeMounts"]}


def test_a_statefulset_has_a_disk_and_finds_its_administrator_in_a_file_of_a_secret() -> None:
    found = broker(broker_settings(storage_class="fast"))

    made = found.objects["StatefulSet", "broker"]["spec"]
    [claim] = made["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    spec = made["template"]["spec"]
    [container] = spec["containers"]
    mounted = volumes(container, spec)
    assert mounted["/etc/rabbitmq/conf.d/30-admin.conf"]["secret"]["secretName"] == "broker-admin"
    assert found.texts("broker-admin")["default_user.conf"] == "default_user = root\ndefault_pass = hidden-word\n"
    assert mounted["/var/lib/rabbitmq"]["name"] == claim["metadata"]["name"]
    assert "env" not in container
    assert {kind for kind, _ in found.objects if "hidden-word" in json.dumps(found.objects[kind, _])} == set()


@pytest.mark.parametrize("kind", ["statefulset", "cluster-operator"])
def test_a_broker_of_a_stack_logs_a_bounded_part_of_a_crash(kind: str) -> None:
    found = broker(broker_settings(kind=kind))

    if kind == "statefulset":
        text = found.objects["ConfigMap", "broker"]["data"]["advanced.config"]
        spec = found.objects["StatefulSet", "broker"]["spec"]["template"]["spec"]
        assert volumes(spec["containers"][0], spec)["/etc/rabbitmq/advanced.config"]["configMap"]["name"] == "broker"
    else:
        text = found.objects["RabbitmqCluster", "broker"]["spec"]["rabbitmq"]["advancedConfig"]
    assert "{console, [{enabled, true}" in text
    assert "chars_limit => 10000" in text


def test_a_pod_of_a_broker_is_made_again_for_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def annotations() -> dict[str, str]:
        found = broker(broker_settings()).objects["StatefulSet", "broker"]["spec"]["template"]["metadata"]
        return dict(found["annotations"])

    before = annotations()
    monkeypatch.setattr(statefulset, "_DIGEST", "another")
    assert annotations() != before


def test_a_statefulset_is_reached_by_a_service_of_every_port_that_pools_need() -> None:
    found = broker(broker_settings())

    service = found.objects["Service", "broker"]
    assert {port["port"] for port in service["spec"]["ports"]} >= {5672, 15672, 5552}
    made = found.objects["StatefulSet", "broker"]["spec"]
    assert service["spec"]["selector"].items() <= made["template"]["metadata"]["labels"].items()
    assert found.objects["Service", made["serviceName"]]["spec"]["clusterIP"] == "None"
    plugins = found.objects["ConfigMap", "broker"]["data"]["enabled_plugins"]
    assert plugins == "[rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream].\n"


def test_the_operator_gets_a_cluster_with_our_administrator_and_streams() -> None:
    found = broker(broker_settings(kind="cluster-operator", replicas=3, storage_class="fast"))

    made = found.objects["RabbitmqCluster", "broker"]
    assert made["apiVersion"] == "rabbitmq.com/v1beta1"
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["persistence"] == {"storage": "1Gi", "storageClassName": "fast"}
    assert made["spec"]["rabbitmq"]["additionalPlugins"] == ["rabbitmq_stream"]
    secret = made["spec"]["secretBackend"]["externalSecret"]["name"]
    assert found.texts(secret) == {
        "username": "root",
        "password": "hidden-word",
        "default_user.conf": "default_user = root\ndefault_pass = hidden-word\n",
    }
    assert ("StatefulSet", "broker") not in found.objects
