"""What the relay gets on a cluster, and a pool whose workers poll there, as Pulumi would get it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from osrdyne.settings.daemon import load
from osrdyne_infra import ClusterProvider, Relay
from osrdyne_pool import settings_file
from osrdyne_relay import RelaySettings
from osrdyne_relay.driver.settings import RelayDriverSettings
from osrdyne_relay.http.access import Access
from osrdyne_relay.redis import server as redis_server
from tests.infra import declaring
from tests.infra.declaring import RELAY, DeclaredObjects, settings
from tests.infra.test_kubernetes_declared import ALL_OF_IT, CLUSTER, changed, pod, reach

pytestmark = [pytest.mark.xdist_group("declared")]

WORD = "word-of-relay-redis"


@cache
def plain() -> DeclaredObjects:
    return declaring.pools(settings(**RELAY))


def changed_by(**changes: Any) -> set[tuple[str, str]]:
    """What other settings of the relay change."""
    return changed(plain(), declaring.pools(settings(**{**RELAY, "relay": {**RELAY["relay"], **changes}})))


def mounted(found: DeclaredObjects, name: str, directory: Path) -> dict[str, Path]:
    """The files of a Deployment's one container, by their paths there."""
    spec = pod(found, name)
    [container] = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    files = {}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        texts = {}
        if "secret" in volume:
            texts = found.texts(volume["secret"]["secretName"])
        elif "configMap" in volume:
            texts = found.objects["ConfigMap", volume["configMap"]["name"]]["data"]
        for file, text in texts.items():
            files[f"{mount['mountPath']}/{file}"] = directory / file
            (directory / file).write_text(text)
    return files


def test_two_relays_in_a_program_have_nothing_of_one_name() -> None:
    def alone(name: str) -> set[tuple[str, str]]:
        given = settings(**RELAY, kubernetes={**declaring.WHOLE["kubernetes"], "namespace": f"rail-{name}"})

        def declare() -> None:
            Relay(name, given, ClusterProvider(f"cluster of {name}", given))

        return set(declaring.declared(declare).everything)

    first, second = alone("relay"), alone("second")
    assert len(first) == len(second)
    assert not first & second


def test_a_stack_without_a_relay_has_nothing_of_it() -> None:
    assert not any("relay" in name for _, name in declaring.pools(settings()).objects)


def test_a_relay_is_in_a_namespace_of_its_own() -> None:
    of_relay = {
        (kind, name)
        for (kind, name), made in plain().objects.items()
        if made["metadata"].get("namespace", name) == "rail-relay"
    }
    assert of_relay == {
        ("Namespace", "rail-relay"),
        ("PodDisruptionBudget", "relay"),
        *(
            (kind, name)
            for kind in ("ConfigMap", "Secret", "Service", "Deployment", "NetworkPolicy")
            for name in ("relay", "relay-redis")
        ),
    }


def test_a_node_reads_settings_clients_and_the_address_of_redis_where_they_are(tmp_path: Path) -> None:
    files = mounted(plain(), "relay", tmp_path)
    [container] = pod(plain(), "relay")["containers"]
    assert container["command"][:4] == ["osrdyne", "relay", "serve", "--settings"]

    read = RelaySettings.from_mapping(settings_file.read(files[container["command"][4]])["relay"])
    assert read.timings.retry_for == 20
    assert read.serve is not None
    assert (read.serve.host, read.serve.plain_http) == ("0.0.0.0", True)
    Access.read(files[str(read.serve.access_file)]).identify(f"Bearer {declaring.TOKEN}", None).may_serve("core/LAX")
    address = urlsplit(files[str(read.redis.url_file)].read_text())
    service = plain().objects["Service", "relay-redis"]
    assert address.hostname == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert address.port == service["spec"]["ports"][0]["port"]
    assert (address.username, address.password) == (read.prefix, WORD)
    # The same port for probes and Service
    assert container["ports"] == [{"name": "node", "containerPort": read.serve.port}]
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "node", "scheme": "HTTP"}
    # And it has the time that it gives to what is in hand
    assert pod(plain(), "relay")["terminationGracePeriodSeconds"] > read.serve.grace


def test_redis_keeps_nothing_and_lets_in_the_nodes_user_alone(tmp_path: Path) -> None:
    files = mounted(plain(), "relay-redis", tmp_path)
    [container] = pod(plain(), "relay-redis")["containers"]
    assert container["command"][0] == "redis-server"
    configured = dict(line.split(" ", 1) for line in files[container["command"][1]].read_text().splitlines())

    assert configured.items() >= redis_server.SETTINGS.items()
    assert files[configured["aclfile"]].read_text() == redis_server.acl("osrdyne-relay", WORD)
    assert int(configured["port"]) == container["ports"][0]["containerPort"]
    # The one folder that it may write to
    assert configured["dir"] in [mount["mountPath"] for mount in container["volumeMounts"] if not mount["readOnly"]]
    spec = plain().objects["Deployment", "relay-redis"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    assert "livenessProbe" not in container


def test_the_pods_fit_the_restricted_standard() -> None:
    for name in ("relay", "relay-redis"):
        spec = pod(plain(), name)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        [container] = spec["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert "memory" in container["resources"]["limits"]
    enforced = plain().objects["Namespace", "rail-relay"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert enforced == "restricted"


def test_a_pool_whose_workers_poll_has_a_daemon_that_starts_none(tmp_path: Path) -> None:
    files = mounted(plain(), "core-daemon", tmp_path)

    read = load(files["/etc/osrdyne/settings/settings.toml"])
    assert isinstance(read.driver, RelayDriverSettings)
    assert read.driver.relay.timings.retry_for == 20
    assert read.driver.relay.serve is None
    node = plain().texts("relay")["relay.address"]
    assert files[str(read.driver.relay.redis.url_file)].read_text() == node
    assert files[str(read.driver.worker_amqp_uri_file)].read_text() == plain().texts("core-worker")["amqp-uri"]
    # It may not ask the cluster, and there is nothing to start workers from
    assert pod(plain(), "core-daemon")["automountServiceAccountToken"] is False
    kinds = {kind for kind, name in plain().objects if name.startswith("core-")}
    assert not {"Role", "RoleBinding", "ServiceAccount"} & kinds
    assert ("ConfigMap", "core-workers") not in plain().objects
    # And the other pool is as it was
    before = declaring.pools(settings())
    assert not any(name.startswith("other") for _, name in changed(before, plain()))


def test_only_nodes_and_the_daemons_of_polling_pools_reach_redis() -> None:
    redis, nodes = (plain().objects["NetworkPolicy", name]["spec"] for name in ("relay-redis", "relay"))
    labels = {
        name: plain().objects["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        for name in ("relay-redis", "relay", "core-daemon", "other-daemon")
    }
    assert redis["podSelector"]["matchLabels"].items() <= labels["relay-redis"].items()
    assert nodes["podSelector"]["matchLabels"].items() <= labels["relay"].items()
    [rule] = redis["ingress"]
    assert [port["port"] for port in rule["ports"]] == [6379]
    own, daemon = rule["from"]
    assert own == {"podSelector": nodes["podSelector"]}
    assert daemon["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "rail-core"}
    assert daemon["podSelector"]["matchLabels"].items() <= labels["core-daemon"].items()
    assert not daemon["podSelector"]["matchLabels"].items() <= labels["other-daemon"].items()
    # Redis reaches nothing, and nodes reach names and Redis
    assert "egress" not in redis
    assert redis["policyTypes"] == nodes["policyTypes"] == ["Ingress", "Egress"]
    dns, data = nodes["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert (data["to"], [port["port"] for port in data["ports"]]) == ([{"podSelector": redis["podSelector"]}], [6379])


def test_a_daemon_that_may_reach_little_else_reaches_redis() -> None:
    found = declaring.pools(settings(**RELAY, kubernetes=ALL_OF_IT["kubernetes"]))

    rules = found.objects["NetworkPolicy", "core-daemon"]["spec"]["egress"]
    [rule] = [rule for rule in rules if [int(port["port"]) for port in rule["ports"]] == [6379]]
    assert rule["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rail-relay"}}}]
    assert not any("6379" in address for address in reach(found.objects["NetworkPolicy", "other-daemon"]["spec"]))


def test_a_worker_answers_at_the_node_that_gave_it_the_request() -> None:
    spec = plain().objects["Service", "relay"]["spec"]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "ClientIP")
    assert "externalTrafficPolicy" not in spec
    nodes = {"service": "LoadBalancer", "annotations": {"a/b": "c"}, "replicas": 3, "image": "mine.invalid/osrdyne:2"}
    found = declaring.pools(settings(**{**RELAY, "relay": {**RELAY["relay"], "nodes": nodes}}))
    outside = found.objects["Service", "relay"]
    # Otherwise all that comes through a machine of the cluster has one address
    assert (outside["spec"]["type"], outside["spec"]["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert outside["metadata"]["annotations"] == {"a/b": "c"}
    assert found.objects["Deployment", "relay"]["spec"]["replicas"] == 3
    assert pod(found, "relay")["containers"][0]["image"] == "mine.invalid/osrdyne:2"
    assert pod(plain(), "relay")["containers"][0]["image"] == CLUSTER["daemon"]["image"]


def test_a_certificate_and_its_key_are_where_the_node_looks_for_them(tmp_path: Path) -> None:
    for name in ("node", "clients"):
        (tmp_path / f"{name}.pem").write_text(f"certificate of {name}\n")
    relay = {
        **RELAY["relay"],
        "certificate": str(tmp_path / "node.pem"),
        "clients_cacertfile": str(tmp_path / "clients.pem"),
        "settings": {},
    }
    found = declaring.pools(settings(**{**RELAY, "relay": relay, "relay_key": "hidden-key"}))

    (tmp_path / "made").mkdir()
    files = mounted(found, "relay", tmp_path / "made")
    read = RelaySettings.from_mapping(settings_file.read(files["/etc/osrdyne/relay/relay.toml"])["relay"]).serve
    assert read is not None
    assert files[str(read.certificate_file)].read_text() == "certificate of node\n"
    assert files[str(read.client_ca_file)].read_text() == "certificate of clients\n"
    assert files[str(read.key_file)].read_text() == "hidden-key"
    assert pod(found, "relay")["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert not any("hidden-key" in json.dumps(made) for (kind, _), made in found.objects.items() if kind != "Secret")


def test_the_keys_of_a_bucket_are_where_the_node_looks_for_them(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificate of the CA\n")
    (tmp_path / "made").mkdir()
    streams = {"keep": 3600, "s3": {"endpoint": "https://s3.invalid", "bucket": "streams"}}
    relay = {
        **RELAY["relay"],
        "streams_cacertfile": str(tmp_path / "ca.pem"),
        "settings": {**RELAY["relay"]["settings"], "streams": streams},
    }
    keys = {"relay_s3_access_key": "hidden-id", "relay_s3_secret_key": "hidden-key"}
    found = declaring.pools(settings(**{**RELAY, "relay": relay, **keys}))

    files = mounted(found, "relay", tmp_path / "made")
    read = RelaySettings.from_mapping(settings_file.read(files["/etc/osrdyne/relay/relay.toml"])["relay"]).streams
    assert read.s3 is not None
    assert (read.keep, read.s3.bucket) == (3600, "streams")
    assert files[str(read.s3.access_key_file)].read_text() == "hidden-id"
    assert files[str(read.s3.secret_key_file)].read_text() == "hidden-key"
    assert files[str(read.s3.ca_file)].read_text() == "certificate of the CA\n"
    assert not any("hidden-" in json.dumps(made) for (kind, _), made in found.objects.items() if kind != "Secret")
    # Other keys restart no node: it reads them again. And the daemon of a pool needs none.
    other = declaring.pools(settings(**{**RELAY, "relay": relay, **keys, "relay_s3_secret_key": "hidden-other"}))
    assert changed(found, other) == {("Secret", "relay-streams")}
    (tmp_path / "daemon").mkdir()
    daemon = load(mounted(found, "core-daemon", tmp_path / "daemon")["/etc/osrdyne/settings/settings.toml"]).driver
    assert isinstance(daemon, RelayDriverSettings)
    assert daemon.relay.streams.s3 is None


def test_nodes_reach_the_server_of_the_bucket() -> None:
    streams = {"s3": {"endpoint": "https://s3.invalid:9000", "bucket": "streams"}}
    relay = {**RELAY["relay"], "settings": {**RELAY["relay"]["settings"], "streams": streams}}
    keys = {"relay_s3_access_key": "hidden-id", "relay_s3_secret_key": "hidden-key"}
    found = declaring.pools(settings(**{**RELAY, "relay": relay, **keys}))

    _, _, bucket = found.objects["NetworkPolicy", "relay"]["spec"]["egress"]
    assert ("to" in bucket, [port["port"] for port in bucket["ports"]]) == (False, [9000])


def test_passwords_are_in_secrets_and_nowhere_else() -> None:
    for (kind, _), made in plain().objects.items():
        if kind != "Secret":
            assert "word-of" not in json.dumps(made)


def test_other_clients_restart_no_node() -> None:
    assert changed_by(clients={}) == {("ConfigMap", "relay")}


def test_other_settings_restart_nodes_and_the_daemons_that_have_them_and_not_redis() -> None:
    assert changed_by(settings={"most_bytes": 2048, "serve": {"plain_http": True, "grace": 40}}) == {
        ("ConfigMap", "relay"),
        ("Deployment", "relay"),
        ("ConfigMap", "core-settings"),
        ("Deployment", "core-daemon"),
    }


def test_another_password_restarts_all_that_has_it() -> None:
    # That of a mock is the same each time
    assert changed_by(rotate="2") == {("Deployment", name) for name in ("relay", "relay-redis", "core-daemon")}
