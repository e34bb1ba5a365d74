"""What a pool gets on a cluster: that its daemon and driver can read it, and that a change touches what it should."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import generate_latest

from osrdyne.drivers.kubernetes import manifests, template
from osrdyne.drivers.kubernetes.settings import KubernetesSettings
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import load
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Users
from osrdyne_runtime import hosts
from tests.drivers.subjects.kubernetes import ROLES
from tests.infra import declaring
from tests.infra.declaring import DeclaredObjects, settings

# One process imports Pulumi's Kubernetes library, which takes seconds.
pytestmark = [pytest.mark.xdist_group("declared")]

CORE: dict[str, Any] = {"image": "osrdyne.invalid/core:1"}
OTHER: dict[str, Any] = {"image": "osrdyne.invalid/other:1"}
CLUSTER: dict[str, Any] = declaring.WHOLE["kubernetes"]
KEDA = {**CORE, "autoscaling": "keda", "max_replicas": 4, "messages_per_worker": 2}
HPA = {**CORE, "autoscaling": "hpa", "resources": {"requests": {"cpu": 1}}}
ALL_OF_IT = {
    "kubernetes": {
        **CLUSTER,
        "monitoring": "prometheus-operator",
        "monitoring_labels": {"release": "mine"},
        "network_policy": {"broker": ["10.1.0.0/16"], "monitoring_namespace": "watch", "workers": ["10.2.0.0/16"]},
    },
    "workers": {"core": KEDA, "other": HPA},
}


@cache
def plain() -> DeclaredObjects:
    return declaring.pools(settings())


@cache
def whole() -> DeclaredObjects:
    return declaring.pools(settings(**ALL_OF_IT))


def changed(before: DeclaredObjects, after: DeclaredObjects) -> set[tuple[str, str]]:
    names = before.objects.keys() | after.objects.keys()
    return {name for name in names if before.objects.get(name) != after.objects.get(name)}


def write(found: DeclaredObjects, config_map: str, directory: Path) -> Path:
    """Put the files of a ConfigMap where a pod would see them."""
    for name, text in found.objects["ConfigMap", config_map]["data"].items():
        (directory / name).write_text(text)
    return directory


def pod(found: DeclaredObjects, name: str = "core-daemon") -> dict[str, Any]:
    spec: dict[str, Any] = found.objects["Deployment", name]["spec"]["template"]["spec"]
    return spec


def test_the_provider_keeps_objects_over_changes_and_adopts_others_only_where_asked() -> None:
    """What it does with these is shown by a real one in test_failed_ups.py."""

    def provider(found: DeclaredObjects) -> dict[str, Any]:
        return found.everything["pulumi:providers:kubernetes", "cluster"]

    always = {
        "clusterIdentifier": "test",
        "enablePatchForce": "true",
        "enableConfigMapMutable": "true",
        "enableSecretMutable": "true",
    }
    assert provider(plain()) == always
    adopting = provider(declaring.pools(settings(adopt=True, kubernetes={**CLUSTER, "identifier": "paris"})))
    assert adopting == {**always, "clusterIdentifier": "paris", "upsertExistingObjects": "true"}


def test_the_daemon_reads_its_pool_and_its_driver_as_they_were_declared(tmp_path: Path) -> None:
    pools = [{"name": "core", "orphan_ttl": "PT90S", "overrides": {"a.b=1": {"unbind_delay": 5}}}, {"name": "other"}]
    daemon = {**CLUSTER["daemon"], "limits": {"starts_in_flight": 3}, "intervals": {"debounce": "PT0.5S"}}
    given = settings(pools=pools, kubernetes={**CLUSTER, "daemon": daemon})

    read = load(write(declaring.pools(given), "core-settings", tmp_path) / "settings.toml")

    assert read.pool == given.pools[0]
    assert isinstance(read.driver, KubernetesSettings)
    assert (read.limits.starts_in_flight, read.intervals.debounce) == (3, 0.5)
    mounts = {mount["mountPath"]: mount["name"] for mount in pod(plain())["containers"][0]["volumeMounts"]}
    for file in (read.broker.amqp_uri_file, read.broker.management_uri_file):
        assert file is not None
        volume = next(volume for volume in pod(plain())["volumes"] if volume["name"] == mounts[str(file.parent)])
        assert file.name in plain().texts(volume["secret"]["secretName"])
    volume = next(
        volume for volume in pod(plain())["volumes"] if volume["name"] == mounts[str(read.driver.template_directory)]
    )
    assert volume["configMap"]["name"] == "core-workers"
    assert read.driver.worker_secret_key in plain().texts(read.driver.worker_secret)


def test_the_daemon_is_asked_for_by_the_names_of_its_service_and_by_those_that_are_given(tmp_path: Path) -> None:
    given = settings(kubernetes={**CLUSTER, "daemon": {**CLUSTER["daemon"], "status_names": ["status.example"]}})
    found = declaring.pools(given)

    read = load(write(found, "core-settings", tmp_path) / "settings.toml")

    service = found.objects["Service", "core-daemon"]["metadata"]
    full = f"{service['name']}.{service['namespace']}"
    names = (service["name"], full, f"{full}.svc", f"{full}.svc.cluster.local", "status.example")
    assert read.status.names == names
    assert all(hosts.may_name(f"{name}:{read.status.port}", read.status.names) for name in names)


@pytest.mark.parametrize(("autoscaling", "worker"), [("none", CORE), ("hpa", HPA), ("keda", KEDA)])
def test_the_driver_takes_the_templates(autoscaling: str, worker: dict[str, Any], tmp_path: Path) -> None:
    found = declaring.pools(settings(workers={"core": worker, "other": OTHER}))

    read = template.load(write(found, "core-workers", tmp_path), autoscaling=autoscaling, container=None)

    assert read.container == "worker"
    made = manifests.Manifests(PoolSettings("core"), read, "core-worker", "amqp-uri").deployment("42")
    container = made["spec"]["template"]["spec"]["containers"][0]
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names))
    file = next(variable["value"] for variable in container["env"] if variable["name"] == "WORKER_AMQP_URI_FILE")
    assert Path(file).name in found.texts("core-worker")


def test_what_a_pod_needs_besides_is_added_to_what_we_give_it(tmp_path: Path) -> None:
    more = {
        "env": {"MODEL": "/srv"},
        "pod": {
            "terminationGracePeriodSeconds": 20,
            "securityContext": {"runAsUser": 1000},
            "volumes": [{"name": "model", "emptyDir": {}}],
            "containers": [{"name": "beside", "image": "b:1"}],
        },
        "container": {"volumeMounts": [{"name": "model", "mountPath": "/srv"}], "tty": True},
    }
    found = declaring.pools(settings(workers={"core": {**CORE, **more}, "other": OTHER}))

    read = template.load(write(found, "core-workers", tmp_path), autoscaling="none", container=None)

    spec = read.deployment["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 20
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert [volume["name"] for volume in spec["volumes"]] == ["broker", "model"]
    assert [container["name"] for container in spec["containers"]] == ["worker", "beside"]
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["broker", "model"]
    assert spec["containers"][0]["tty"] is True
    assert {"name": "MODEL", "value": "/srv"} in spec["containers"][0]["env"]


@pytest.mark.parametrize("autoscaling", ["none", "hpa", "keda"])
def test_the_daemon_may_do_what_the_drivers_tests_run_with_and_no_more(autoscaling: str) -> None:
    worker = {"none": CORE, "hpa": HPA, "keda": KEDA}[autoscaling]
    found = declaring.pools(settings(workers={"core": worker, "other": OTHER}))

    files = ["role.yaml"] if autoscaling == "none" else ["role.yaml", f"role-{autoscaling}.yaml"]
    assert found.objects["Role", "core-daemon"]["rules"] == [
        rule for file in files for rule in yaml.safe_load((ROLES / file).read_text())["rules"]
    ]
    binding = found.objects["RoleBinding", "core-daemon"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "core-daemon", "namespace": "rail-core"}]
    assert not any(kind.startswith("Cluster") for kind, _ in found.objects)


def test_every_object_of_a_pool_is_in_the_pools_namespace() -> None:
    for (kind, name), made in whole().objects.items():
        pool = next(other for other in ("core", "other") if other in name)
        assert made["metadata"].get("namespace", f"rail-{pool}") == f"rail-{pool}"
        assert kind == "Namespace" or "namespace" in made["metadata"]


def test_a_changed_delay_restarts_only_the_daemons_of_that_pool() -> None:
    after = declaring.pools(settings(pools=[{"name": "core", "unbind_delay": 5}, {"name": "other"}]))

    assert changed(plain(), after) == {("ConfigMap", "core-settings"), ("Deployment", "core-daemon")}
    before_and_after = [json.dumps(stack.objects["Deployment", "core-daemon"]) for stack in (plain(), after)]
    hashes = [re.findall(r'"osrdyne.io/configuration": "(\w+)"', text)[0] for text in before_and_after]
    assert before_and_after[0].replace(hashes[0], hashes[1]) == before_and_after[1]


def test_a_changed_template_restarts_only_the_daemons_of_that_pool() -> None:
    after = declaring.pools(settings(workers={"core": {**CORE, "env": {"A": "b"}}, "other": OTHER}))

    assert changed(plain(), after) == {("ConfigMap", "core-workers"), ("Deployment", "core-daemon")}


def test_another_pool_changes_nothing_of_those_that_are_there() -> None:
    alone = declaring.pools(settings(pools=[{"name": "core"}], workers={"core": CORE}))

    assert {name for _, name in changed(alone, plain())} <= {"rail-other"} | {
        name for _, name in plain().objects if name.startswith("other-")
    }


def test_a_rollout_leaves_no_gap_and_a_drained_node_takes_one_daemon_at_most() -> None:
    spec = plain().objects["Deployment", "core-daemon"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = plain().objects["PodDisruptionBudget", "core-daemon"]["spec"]
    assert (budget["minAvailable"], budget["selector"]) == (1, spec["selector"])
    # While the broker is away no daemon is ready: that must not keep a node from being drained.
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    container = pod(plain())["containers"][0]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "status"}
    # A daemon that waits for the broker is not helped by a restart.
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "status"}


def test_one_daemon_alone_has_no_budget_that_would_keep_its_node_from_being_drained() -> None:
    one = declaring.pools(settings(kubernetes={**CLUSTER, "daemon": {**CLUSTER["daemon"], "replicas": 1}}))

    assert ("PodDisruptionBudget", "core-daemon") not in one.objects


def test_a_daemon_is_not_taken_for_a_worker_of_the_driver() -> None:
    for made in whole().objects.values():
        assert "osrdyne/" not in json.dumps(made["metadata"].get("labels", {}))
    assert "osrdyne/pool" not in json.dumps(whole().objects["Deployment", "core-daemon"])


def test_the_pods_fit_the_restricted_standard() -> None:
    made = yaml.safe_load(plain().objects["ConfigMap", "core-workers"]["data"]["deployment.yaml"])
    for spec in (pod(plain()), made["spec"]["template"]["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod(plain())["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert made["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert plain().objects["ServiceAccount", "core-daemon"]["automountServiceAccountToken"] is False
    enforced = plain().objects["Namespace", "rail-core"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert enforced == "restricted"


def test_addresses_are_in_secrets_and_nowhere_else() -> None:
    users = Users.of("core", "Test 1")
    assert whole().texts("core-daemon") == {
        "daemon.uri": address("amqp", users.daemon, "broker/trains%2Fone"),
        "daemon-management.uri": address("http", users.daemon, "broker:15672"),
    }
    assert whole().texts("core-worker") == {"amqp-uri": address("amqp", users.worker, "broker/trains%2Fone")}
    assert whole().texts("core-scaler") == {"host": address("http", users.monitor, "broker:15672/trains%2Fone")}
    for (kind, _), made in whole().objects.items():
        if kind != "Secret":
            assert "word-of" not in json.dumps(made)
            assert "hidden-word" not in json.dumps(made)
    assert "env" not in pod(whole())["containers"][0]


def address(scheme: str, user: str, rest: str) -> str:
    return f"{scheme}://{user}:word-of-{user}@{rest}"


def test_keda_gets_what_the_scaled_object_names() -> None:
    made = yaml.safe_load(whole().objects["ConfigMap", "core-workers"]["data"]["scaledobject.yaml"])
    [trigger] = made["spec"]["triggers"]
    named = whole().objects["TriggerAuthentication", trigger["authenticationRef"]["name"]]
    assert named["spec"]["secretTargetRef"] == [{"parameter": "host", "name": "core-scaler", "key": "host"}]
    assert trigger["metadata"]["value"] == "2"
    assert made["spec"]["maxReplicaCount"] == 4
    assert ("TriggerAuthentication", "other-broker") not in whole().objects


def test_a_brokers_own_authority_is_where_daemons_and_keda_look_for_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("a certificate\n")
    secured = {"management": "https://b:1", "amqp": "amqps://b", "cacertfile": str(tmp_path / "ca.pem")}
    found = declaring.pools(settings(broker=secured, workers={"core": KEDA, "other": OTHER}))

    assert found.objects["ConfigMap", "core-broker-ca"]["data"] == {"ca.pem": "a certificate\n"}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod(found)["containers"][0]["volumeMounts"]}
    volume = next(
        volume for volume in pod(found)["volumes"] if volume.get("configMap", {}).get("name") == "core-broker-ca"
    )
    uri = found.texts("core-daemon")["daemon-management.uri"]
    assert uri.endswith(f"?cacertfile={mounts[volume['name']]}/ca.pem")
    scaler = found.texts("core-scaler")
    assert (scaler["tls"], scaler["ca"]) == ("enable", "a certificate\n")
    parameters = found.objects["TriggerAuthentication", "core-broker"]["spec"]["secretTargetRef"]
    assert {parameter["parameter"] for parameter in parameters} == {"host", "tls", "ca"}


def test_pods_reach_the_broker_and_what_they_need_and_nothing_else() -> None:
    daemon, workers = (whole().objects["NetworkPolicy", f"core-{program}"]["spec"] for program in ("daemon", "workers"))
    assert reach(daemon) == {"everywhere:53", "10.1.0.0/16:5672,15672", "0.0.0.0/0:443,6443"}
    assert reach(workers) == {"everywhere:53", "10.1.0.0/16:5672", "10.2.0.0/16:any"}
    [reader] = daemon["ingress"]
    [peer] = reader["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "watch"}
    assert [port["port"] for port in reader["ports"]] == [8042]
    assert "ingress" not in workers
    assert workers["policyTypes"] == ["Ingress", "Egress"]
    # Every pod is one or the other.
    [chosen] = workers["podSelector"]["matchExpressions"]
    assert chosen["operator"] == "NotIn"
    assert chosen["values"] == [daemon["podSelector"]["matchLabels"][chosen["key"]]]
    assert not any(kind == "NetworkPolicy" for kind, _ in plain().objects)


def reach(policy: dict[str, Any]) -> set[str]:
    found = set()
    for rule in policy["egress"]:
        where = [peer["ipBlock"]["cidr"] for peer in rule.get("to", [])] or ["everywhere"]
        ports = dict.fromkeys(str(int(port["port"])) for port in rule.get("ports", [])) or {"any": None}
        found |= {f"{address}:{','.join(ports)}" for address in where}
    return found


@pytest.mark.parametrize(
    ("series", "alert", "lasting"),
    [
        ('osrdyne_queues_with_other_consumers{queue="core-orphan"} 1', "OtherConsumers", "1m"),
        ('osrdyne_wakes_refused_total{reason="groups"} 1', "NoRoomForKeys", "0m"),
        ('osrdyne_wakes_refused_total{reason="budget"} 1', "WakesRefused", "15m"),
        ('osrdyne_wakes_refused_total{reason="keys"} 1', "WakesRefused", "15m"),
        ('osrdyne_worker_exits_total{how="signal"} 1', "WorkersEnd", "0m"),
        ('osrdyne_queue_seconds_bucket{le="5.0"} 1', "TooFewWorkers", "15m"),
        ('osrdyne_queue_messages{queue="core-waiting"} 1', "InventoryStaysFull", "15m"),
        ('osrdyne_queue_messages{queue="core-poison"} 1', "Poison", "1m"),
    ],
)
def test_what_needs_a_person_has_its_alert(series: str, alert: str, lasting: str) -> None:
    rules = whole().objects["PrometheusRule", "core-daemon"]["spec"]["groups"][0]["rules"]

    assert [(rule["alert"], rule["for"]) for rule in rules if about(rule["expr"], series)] == [
        (f"Osrdyne{alert}", lasting)
    ]


def about(expression: str, series: str) -> bool:
    """Whether a rule looks at a series: by its name, and by the label in which it differs from others of that name."""
    found = re.fullmatch(r'(\w+)\{(\w+)="(.*)"\} 1', series)
    assert found
    metric, label, value = found.groups()
    asked = re.search(rf'{metric}{{[^}}]*?(?:{label}(=|!=|=~)"([^"]*)")?}}', expression)
    if asked is None:
        return False
    match asked[1]:
        case "=":
            return asked[2] == value
        case "!=":
            return asked[2] != value
        case "=~":
            return re.fullmatch(asked[2], value) is not None
    return True


def test_alerts_and_dashboard_look_at_metrics_that_there_are() -> None:
    rules = whole().objects["PrometheusRule", "core-daemon"]["spec"]["groups"][0]["rules"]
    asked = " ".join(rule["expr"] for rule in rules)
    dashboard = json.loads(whole().objects["ConfigMap", "core-dashboard"]["data"]["osrdyne-core.json"])
    asked += " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    metrics = re.findall(r"^# TYPE (\w+) (\w+)", generate_latest(Metrics().registry).decode(), re.MULTILINE)
    there = {f"{name}_bucket" if kind == "histogram" else name for name, kind in metrics}
    assert set(re.findall(r"osrdyne_\w+", asked)) <= there
    # Every series is this pool's.
    assert asked.count('namespace="rail-core", job="core-daemon"') == len(re.findall(r"osrdyne_\w+", asked))
    monitor = whole().objects["ServiceMonitor", "core-daemon"]
    assert monitor["metadata"]["labels"]["release"] == "mine"
    service = whole().objects["Service", "core-daemon"]
    assert service["spec"]["ports"][0]["name"] == monitor["spec"]["endpoints"][0]["port"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert not any(kind in ("ServiceMonitor", "PrometheusRule") for kind, _ in plain().objects)
