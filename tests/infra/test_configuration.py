"""The stack's configuration is parsed once, strictly: what is wrong is named, with what would be right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import steps
from osrdyne.settings.daemon import IntervalSettings, LimitSettings
from osrdyne_infra.cluster import settings as cluster_settings
from osrdyne_infra.cluster.settings import DaemonPods
from osrdyne_infra.configuration import EXAMPLES, HIDDEN, OF_BROKER, BrokerStack, StackSettings, parse
from osrdyne_infra.errors import ConfigurationError

pytestmark = pytest.mark.fast
#: Where `pulumi` looks for them.
STACKS = Path(steps.ROOT, yaml.safe_load(Path(steps.ROOT, "Pulumi.yaml").read_text())["stackConfigDir"])
SECRETS = frozenset(f"osrdyne:{name}" for name in HIDDEN)
BROKER = {"management": "http://broker:15672", "amqp": "amqp://broker:5672", "admin": "root"}
WHOLE: Mapping[str, Any] = {
    "broker": BROKER,
    "admin_password": "hidden-word",
    "vhost": "dev",
    "instance": "alice",
    "pools": [{"name": "core", "unbind_delay": "PT1M"}, {"name": "other"}],
}


def raw(**changes: Any) -> dict[str, str]:
    """What Pulumi hands over: texts, and JSON of everything else. None leaves a value out."""
    values = {name: value for name, value in {**WHOLE, **changes}.items() if value is not None}
    return {f"osrdyne:{name}": value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


CLUSTER: Mapping[str, Any] = {"namespace": "rail", "daemon": {"image": "registry.example/osrdyne:1"}}
WORKERS: Mapping[str, Any] = {"core": {"image": "registry.example/core:1"}, "other": {"image": "a@sha256:" + "0b" * 32}}
DEPLOYMENT = {"kind": "statefulset", "admin": "root", "image": "rabbitmq:4.3-management", "storage": "10Gi"}


def read(**changes: Any) -> StackSettings:
    settings = parse(raw(**changes), SECRETS)
    assert isinstance(settings, StackSettings)
    return settings


def on_cluster(cluster: dict[str, Any] | None = None, core: dict[str, Any] | None = None, **more: Any) -> StackSettings:
    """With the pools on a cluster, and changes there or to the workers of one pool."""
    workers = {**WORKERS, "core": {**WORKERS["core"], **(core or {})}}
    return read(**{"kubernetes": {**CLUSTER, **(cluster or {})}, "workers": workers, **more})


def of_broker(**changes: Any) -> BrokerStack:
    """A stack that deploys a broker."""
    whole: dict[str, Any] = {**dict.fromkeys(WHOLE), "admin_password": "hidden-word", "broker_deployment": DEPLOYMENT}
    settings = parse(raw(**{**whole, "kubernetes": {"namespace": "rail"}, **changes}), SECRETS)
    assert isinstance(settings, BrokerStack)
    return settings


def test_a_pool_on_a_cluster_is_refused_where_a_name_made_of_its_own_is_too_long() -> None:
    for length, is_right in ((56, True), (57, False)):
        name = "p" * length
        changes = {
            "pools": [{"name": name}],
            "kubernetes": {**CLUSTER, "namespace": "r"},
            "workers": {name: WORKERS["core"]},
        }
        if is_right:
            assert read(**changes).cluster is not None
        else:
            with pytest.raises(ConfigurationError, match=rf"osrdyne:pools: has pool {name}, whose Service"):
                read(**changes)


def test_several_pools_are_read_and_belong_to_the_instance() -> None:
    settings = read()

    assert [(pool.name, pool.instance, pool.unbind_delay) for pool in settings.pools] == [
        ("core", "alice", 60.0),
        ("other", "alice", 600.0),
    ]


@pytest.mark.parametrize("name", ["dev", "staging", "prod", "staging-broker"])
def test_the_file_of_a_stack_is_sound(name: str) -> None:
    given = yaml.safe_load(Path(STACKS, f"Pulumi.{name}.yaml").read_text())["config"]
    values = {setting.removeprefix("osrdyne:"): value for setting, value in given.items()}

    settings = parse(raw(**{**dict.fromkeys(WHOLE), **values, "admin_password": "hidden-word"}), SECRETS)

    assert isinstance(settings, BrokerStack) == name.endswith("-broker")


def test_no_file_of_a_stack_is_forgotten_here() -> None:
    assert {path.name for path in STACKS.iterdir()} == {
        f"Pulumi.{stack}.yaml" for stack in ("dev", "staging", "prod", "staging-broker")
    }


def test_a_pool_on_a_cluster_has_a_namespace_and_workers_of_its_own() -> None:
    settings = on_cluster(core={"env": {"MODEL": "/srv"}, "resources": {"requests": {"cpu": 2, "memory": "1Gi"}}})

    assert settings.cluster is not None
    assert settings.cluster.pool_namespace("core") == "rail-core"
    assert settings.cluster.daemon.replicas == 2
    assert settings.workers["core"].env == {"MODEL": "/srv"}
    assert settings.workers["core"].resources == {"requests": {"cpu": "2", "memory": "1Gi"}}
    assert settings.workers["other"].image == "a@sha256:" + "0b" * 32


@pytest.mark.parametrize(
    "amount",
    [*("1", ".5", "1.", "0.5", "1.5Gi", "1e3", "1E3", "1e-3", "1e+3"), *(f"1{unit}" for unit in "numkMGTPE"), "1Ki"],
)
def test_an_amount_may_have_each_unit_that_kubernetes_has(amount: str) -> None:
    settings = on_cluster(core={"resources": {"limits": {"memory": amount}}})

    assert settings.workers["core"].resources == {"limits": {"memory": amount}}


@pytest.mark.parametrize(
    "amount", ["1K", "1ki", "1mi", "1B", "1GB", "1e", "1e3Ki", "1e1.5", ".", "-1", "", "nan", True]
)
def test_an_amount_that_kubernetes_would_refuse_is_refused(amount: object) -> None:
    with pytest.raises(ConfigurationError, match="is not an amount"):
        on_cluster(core={"resources": {"limits": {"memory": amount}}})


def test_of_an_address_the_slash_of_its_path_is_left_out_and_its_query_stays() -> None:
    broker = read(broker={**BROKER, "management": "http://[::1]:1/", "amqp": "amqps://b:1/?cacertfile=/a/"}).broker

    assert (broker.management, broker.amqp) == ("http://[::1]:1", "amqps://b:1?cacertfile=/a/")


def test_a_kubeconfig_is_taken_and_not_shown() -> None:
    settings = on_cluster(kubeconfig="clusters: [hidden-word]")

    assert settings.cluster is not None
    assert settings.cluster.kubeconfig == "clusters: [hidden-word]"
    assert "hidden-word" not in repr(settings)


def test_the_daemons_own_tables_are_those_that_it_reads() -> None:
    assert set(cluster_settings.LIMITS) == set(LimitSettings.model_fields)
    assert set(cluster_settings.INTERVALS) == set(IntervalSettings.model_fields)
    assert {"limits", "intervals"} <= set(DaemonPods.model_fields)


def test_a_stack_is_a_broker_or_pools() -> None:
    assert of_broker().deployment.replicas == 1
    assert of_broker(kubeconfig="hidden-word").cluster.kubeconfig == "hidden-word"
    assert "hidden-word" not in repr(of_broker(kubeconfig="hidden-word"))
    assert of_broker(adopt="true").adopt
    with pytest.raises(ConfigurationError, match="osrdyne:pools: is not for a stack that deploys a broker"):
        of_broker(pools=[{"name": "core"}])


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"vhots": "dev"}, "osrdyne:vhots", "known are osrdyne:broker"),
    ({"vhost": None}, "osrdyne:vhost", "is missing"),
    ({"vhost": ""}, "osrdyne:vhost", "is not text of 1 to 255 bytes"),
    ({"instance": None}, "osrdyne:instance", "is missing"),
    ({"admin_password": None}, "osrdyne:admin_password", "is missing"),
    ({"broker": "http://broker"}, "osrdyne:broker", "is not a table of management, amqp, admin"),
    ({"broker": {**BROKER, "amqp": "http://broker"}}, "osrdyne:broker.amqp", "give amqp://HOST:PORT or amqps://"),
    ({"broker": {**BROKER, "amqp": "amqp://a:b@broker"}}, "osrdyne:broker.amqp", "without user and path"),
    ({"broker": {**BROKER, "management": "http://broker/api"}}, "osrdyne:broker.management", "user, path and query"),
    (
        {"broker": {**BROKER, "management": "https://broker:15671?cacertfile=/a"}},
        "osrdyne:broker.management",
        "has a query (the CA of a management API is named by osrdyne:broker.cacertfile); give http",
    ),
    ({"broker": {**BROKER, "statistics_interval": "soon"}}, "osrdyne:broker.statistics_interval", "give seconds"),
    ({"broker": {**BROKER, "port": 1}}, "osrdyne:broker.port", "known are management, amqp, admin"),
    ({"broker": {"management": "http://broker:1"}}, "osrdyne:broker.amqp", "is missing"),
    ({"pools": []}, "osrdyne:pools", "is not a list of one pool or more"),
    ({"pools": {"name": "core"}}, "osrdyne:pools", "is not a list of one pool or more"),
    ({"pools": ["core"]}, "osrdyne:pools[0]", "is not a table of name"),
    ({"pools": [{"name": "core"}, {"name": "core"}]}, "osrdyne:pools[1].name", "is the name of two pools"),
    ({"pools": [{"name": "Core"}]}, "osrdyne:pools[0].name", "use lower-case letters"),
    ({"pools": [{}]}, "osrdyne:pools[0].name", "give the pool a name"),
    ({"pools": [{"name": "core", "delivery_limit": "5"}]}, "osrdyne:pools[0].delivery_limit", "integer of 1 or more"),
    ({"pools": [{"name": "core", "message_ttl": "1h"}]}, "osrdyne:pools[0].message_ttl", "'PT1M30S'"),
    ({"pools": [{"name": "core", "instance": "x"}]}, "osrdyne:pools[0].instance", "known are name"),
    ({"pools": [{"name": "core", "unbnd": 1}]}, "osrdyne:pools[0].unbnd", "known are name"),
    ({"lose_messages_of": "core"}, "osrdyne:lose_messages_of", "is not a list of pools"),
    ({"lose_messages_of": ["cores"]}, "osrdyne:lose_messages_of[0]", "its pools are core, other"),
    ({"rotate": {"cores": {}}}, "osrdyne:rotate.cores", "known are core, other"),
    ({"rotate": {"core": {"boss": 1}}}, "osrdyne:rotate.core.boss", "known are client, worker"),
    ({"rotate": {"core": {"worker": True}}}, "osrdyne:rotate.core.worker", "is not text or an integer"),
    ({"adopt": "perhaps"}, "osrdyne:adopt", "neither true nor false"),
    ({"kubeconfig": "clusters"}, "osrdyne:kubeconfig", "for a stack with osrdyne:kubernetes"),
]


@pytest.mark.parametrize(("changes", "path", "problem"), WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed_and_an_example(
    changes: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**changes)

    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert problem in said
    assert "\nExample:\n  " in said
    assert "hidden-word" not in said


WRONG_ON_A_CLUSTER: list[tuple[dict[str, Any], str, str]] = [
    ({"kubernetes": "rail"}, "osrdyne:kubernetes", "is not a table of namespace, context"),
    ({"kubernetes": {"namespace": "rail"}}, "osrdyne:kubernetes.daemon", "is missing"),
    ({"kubernetes": {"daemon": {}}}, "osrdyne:kubernetes.namespace", "is missing"),
    ({"kubernetes": None}, "osrdyne:workers", "for a stack with osrdyne:kubernetes"),
    ({"cluster": {"namespace": "Rail"}}, "osrdyne:kubernetes.namespace", "lower-case letters"),
    ({"cluster": {"namespace": "r" * 60}}, "osrdyne:kubernetes.namespace", "longer than 63 characters"),
    ({"cluster": {"daemon": {}}}, "osrdyne:kubernetes.daemon.image", "is missing"),
    ({"cluster": {"daemon": {"image": "osrdyne"}}}, "osrdyne:kubernetes.daemon.image", "names no version"),
    ({"cluster": {"daemon": {"image": "a/osrdyne:latest"}}}, "osrdyne:kubernetes.daemon.image", "names no version"),
    ({"daemon": {"replicas": 0}}, "osrdyne:kubernetes.daemon.replicas", "integer of 1 to 5"),
    ({"daemon": {"verbose": "yes"}}, "osrdyne:kubernetes.daemon.verbose", "neither true nor false"),
    ({"daemon": {"pull_policy": "Often"}}, "osrdyne:kubernetes.daemon.pull_policy", "IfNotPresent, Always, Never"),
    ({"daemon": {"resources": {"cpu": 1}}}, "osrdyne:kubernetes.daemon.resources.cpu", "known are requests, limits"),
    (
        {"daemon": {"resources": {"limits": {"memory": "1 GB"}}}},
        "osrdyne:kubernetes.daemon.resources.limits.memory",
        "is not an amount",
    ),
    (
        {"daemon": {"resources": {"limits": {"memory": "512K"}}}},
        "osrdyne:kubernetes.daemon.resources.limits.memory",
        "'512K' is not an amount; give 2, '0.5', 100m, 512Mi or 2Gi (k is 1000, Ki is 1024)",
    ),
    ({"daemon": {"limits": {"starts": 1}}}, "osrdyne:kubernetes.daemon.limits.starts", "known are orphan_prefetch"),
    ({"daemon": {"limits": {"held_bytes": 0.5}}}, "osrdyne:kubernetes.daemon.limits.held_bytes", "integer of 1"),
    ({"daemon": {"intervals": {"debounce": "1s"}}}, "osrdyne:kubernetes.daemon.intervals.debounce", "'PT1M30S'"),
    ({"daemon": {"intervals": {"debounce": 0}}}, "osrdyne:kubernetes.daemon.intervals.debounce", "longer than 0"),
    ({"cluster": {"pod_security": "none"}}, "osrdyne:kubernetes.pod_security", "restricted, baseline, privileged"),
    ({"cluster": {"monitoring": True}}, "osrdyne:kubernetes.monitoring", "none, prometheus-operator"),
    ({"cluster": {"monitoring_labels": {"release": 1}}}, "osrdyne:kubernetes.monitoring_labels.release", "in quotes"),
    ({"cluster": {"network_policy": {}}}, "osrdyne:kubernetes.network_policy.broker", "is missing"),
    ({"cluster": {"network_policy": None}}, "osrdyne:kubernetes.network_policy", "None is not a table of broker"),
    (
        {"cluster": {"network_policy": {"broker": ["10.0.0.1/8"]}}},
        "osrdyne:kubernetes.network_policy.broker[0]",
        "is not a range of addresses",
    ),
    (
        {"cluster": {"network_policy": {"broker": "10.1.0.0/16"}}},
        "osrdyne:kubernetes.network_policy.broker",
        "nor a list of ranges of addresses such as [10.1.0.0/16]",
    ),
    (
        {"cluster": {"network_policy": {"broker": []}}},
        "osrdyne:kubernetes.network_policy.broker",
        "[] is neither the name of a namespace nor a list",
    ),
    (
        {"cluster": {"network_policy": {"broker": "b", "api_server": []}}},
        "osrdyne:kubernetes.network_policy.api_server",
        "at least 1",
    ),
    ({"daemon": {"image": "a/osrdyne:1 "}}, "osrdyne:kubernetes.daemon.image", "is not the name of an image"),
    ({"pipeline": {"image": "a:1", "memory": 1}}, "osrdyne:pipeline.memory", "1 is not a size such as 512m or 2g"),
    ({"workers": None}, "osrdyne:workers", "is missing"),
    ({"workers": {"core": {"image": "a:1"}}}, "osrdyne:workers.other", "each pool needs its workers"),
    ({"workers": {"third": {"image": "a:1"}}}, "osrdyne:workers.third", "known are core, other"),
    ({"core": {"image": 1}}, "osrdyne:workers.core.image", "is not text"),
    ({"core": {"command": "worker"}}, "osrdyne:workers.core.command", "is not a list"),
    ({"core": {"args": ["--n", 1]}}, "osrdyne:workers.core.args[1]", "in quotes"),
    ({"core": {"env": {"N": 1}}}, "osrdyne:workers.core.env.N", "in quotes"),
    ({"core": {"env": {"WORKER_KEY": "1"}}}, "osrdyne:workers.core.env.WORKER_KEY", "set for each worker"),
    ({"core": {"autoscaling": "vpa"}}, "osrdyne:workers.core.autoscaling", "none, hpa, keda"),
    ({"core": {"replicas": 0}}, "osrdyne:workers.core.replicas", "integer of 1 or more"),
    ({"core": {"max_replicas": 3}}, "osrdyne:workers.core.max_replicas", "is for autoscaling hpa or keda"),
    ({"core": {"autoscaling": "keda", "replicas": 3}}, "osrdyne:workers.core.replicas", "is for autoscaling none"),
    ({"core": {"autoscaling": "hpa"}}, "osrdyne:workers.core.resources.requests", "has no cpu"),
    ({"core": {"container": {"image": "b:1"}}}, "osrdyne:workers.core.container.image", "is made from other settings"),
    ({"core": {"pod": []}}, "osrdyne:workers.core.pod", "is not a table of fields"),
]


@pytest.mark.parametrize(("changes", "path", "problem"), WRONG_ON_A_CLUSTER)
def test_a_wrong_value_of_a_cluster_is_named_too(changes: dict[str, Any], path: str, problem: str) -> None:
    given = dict(changes)
    if daemon := given.pop("daemon", None):
        given["cluster"] = {"daemon": {**CLUSTER["daemon"], **daemon}}

    with pytest.raises(ConfigurationError) as caught:
        on_cluster(**given)

    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert problem in said
    assert "\nExample:\n  " in said


WRONG_BROKERS: list[tuple[dict[str, Any], str, str]] = [
    ({"broker_deployment": {"kind": "statefulset"}}, "osrdyne:broker_deployment.admin", "is missing"),
    ({"broker_deployment": {**DEPLOYMENT, "kind": "pod"}}, "osrdyne:broker_deployment.kind", "statefulset, cluster-op"),
    ({"broker_deployment": {**DEPLOYMENT, "admin": "a#b"}}, "osrdyne:broker_deployment.admin", "letters, digits"),
    ({"broker_deployment": {**DEPLOYMENT, "replicas": 3}}, "osrdyne:broker_deployment.replicas", "cluster-operator"),
    (
        {"broker_deployment": {**DEPLOYMENT, "kind": "cluster-operator", "replicas": 2}},
        "osrdyne:broker_deployment.replicas",
        "is even",
    ),
    ({"broker_deployment": {**DEPLOYMENT, "storage": "much"}}, "osrdyne:broker_deployment.storage", "is not an amount"),
    (
        {"broker_deployment": {**DEPLOYMENT, "storage": 0}},
        "osrdyne:broker_deployment.storage",
        "is not the size of a disk",
    ),
    (
        {"broker_deployment": {**DEPLOYMENT, "storage": "0.0Gi"}},
        "osrdyne:broker_deployment.storage",
        "is not the size of a disk",
    ),
    ({"admin_password": "hidden word"}, "osrdyne:admin_password", "letters, digits"),
    ({"kubernetes": None}, "osrdyne:kubernetes", "is missing"),
    ({"kubernetes": CLUSTER}, "osrdyne:kubernetes.daemon", "known are namespace, context, identifier"),
]


@pytest.mark.parametrize(("changes", "path", "problem"), WRONG_BROKERS)
def test_a_wrong_value_of_a_broker_to_deploy_is_named_too(changes: dict[str, Any], path: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        of_broker(**changes)

    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert problem in said
    assert "hidden" not in said


JOBS: Mapping[str, Any] = {"database": "postgresql://db:5432?sslmode=require", "admin": "postgres"}
WITH_JOBS: Mapping[str, Any] = {
    "pools": [{"name": "core", "jobs": {}}, {"name": "other"}],
    "jobs": JOBS,
    "jobs_admin_password": "hidden-word",
}


def test_a_pool_has_jobs_on_a_server_with_an_administrator() -> None:
    settings = read(**WITH_JOBS)

    assert [pool.jobs is not None for pool in settings.pools] == [True, False]
    assert settings.jobs is not None
    assert settings.jobs.redo.replicas == 2
    address = settings.jobs.admin_address("a/b@c")
    assert address == "postgresql://postgres:a%2Fb%40c@db:5432/postgres?sslmode=require"
    assert "hidden-word" not in repr(settings)
    assert read(**{**WITH_JOBS, "rotate": {"core": {"jobs": 2, "jobs-owner": 3}}}).rotate["core"]["jobs"] == "2"


WRONG_JOBS: list[tuple[dict[str, Any], str, str]] = [
    ({"jobs": None}, "osrdyne:jobs", "is missing; pool core has jobs, which need a database"),
    ({"jobs": None, "pools": [{"name": "core"}]}, "osrdyne:jobs_admin_password", "for a stack with osrdyne:jobs"),
    ({"jobs_admin_password": None}, "osrdyne:jobs_admin_password", "is missing"),
    ({"jobs": "postgresql://db"}, "osrdyne:jobs", "is not a table of database, inside_database, admin"),
    ({"jobs": {"database": "postgresql://db"}}, "osrdyne:jobs.admin", "is missing"),
    ({"jobs": {**JOBS, "database": "mysql://db"}}, "osrdyne:jobs.database", "give postgresql://HOST:PORT"),
    ({"jobs": {**JOBS, "database": "postgresql://a:hidden@db"}}, "osrdyne:jobs.database", "without user and path"),
    ({"jobs": {**JOBS, "inside_database": "postgresql://db/x"}}, "osrdyne:jobs.inside_database", "user and path"),
    ({"jobs": {**JOBS, "redo": {"replicas": 0}}}, "osrdyne:jobs.redo.replicas", "integer of 1 to 5"),
    ({"jobs": {**JOBS, "redo": {"image": "osrdyne"}}}, "osrdyne:jobs.redo.image", "names no version"),
    ({"jobs": {**JOBS, "serve": {}}}, "osrdyne:jobs.serve", "known are database, inside_database"),
    ({"pools": [{"name": "core", "jobs": {"redo": {"most": 0}}}]}, "osrdyne:pools[0].jobs.redo.most", "1 or more"),
]


@pytest.mark.parametrize(("changes", "path", "problem"), WRONG_JOBS)
def test_a_wrong_value_of_jobs_is_named_too(changes: dict[str, Any], path: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**{**WITH_JOBS, **changes})

    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert problem in said
    assert "\nExample:\n  " in said
    assert "hidden" not in said


def test_pods_that_may_not_connect_anywhere_need_a_way_to_the_database() -> None:
    cluster = {"network_policy": {"broker": ["10.1.0.0/16"]}}
    with pytest.raises(ConfigurationError, match=r"network_policy\.database: is missing; pool core has jobs"):
        on_cluster(cluster, **WITH_JOBS)

    on_cluster({"network_policy": {"broker": ["10.1.0.0/16"], "database": "databases"}}, **WITH_JOBS)


def test_the_jobs_password_in_the_clear_is_refused_without_being_said() -> None:
    with pytest.raises(ConfigurationError, match="osrdyne:jobs_admin_password: is a password in the clear") as caught:
        parse(raw(**WITH_JOBS), {"osrdyne:admin_password"})

    assert "hidden-word" not in str(caught.value)


def test_settings_of_other_programs_are_left_to_them() -> None:
    given = raw()

    assert parse({**given, "pulumi:tags": "{}", "aws:region": "eu-west-3"}, {*SECRETS, "aws:secretKey"}) == read()


def test_a_password_in_the_clear_is_refused_without_being_said() -> None:
    with pytest.raises(ConfigurationError, match="in the clear") as caught:
        parse(raw(), frozenset())

    assert "hidden-word" not in str(caught.value)


def test_a_kubeconfig_in_the_clear_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="osrdyne:kubeconfig: holds credentials in the clear"):
        parse(raw(kubeconfig="hidden-word"), {"osrdyne:admin_password"})


def test_a_secret_that_would_come_out_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="osrdyne:vhost: is not a secret"):
        parse(raw(), SECRETS | {"osrdyne:vhost"})


def test_what_is_read_does_not_show_the_password() -> None:
    assert "hidden-word" not in repr(read())


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - set(HIDDEN)))
def test_every_example_is_one_that_is_accepted(name: str) -> None:
    ((path, value),) = yaml.safe_load(EXAMPLES[name].replace("osrdyne:", "", 1)).items()

    if name == "broker_deployment":
        of_broker(**{path: value})
    elif name == "jobs":
        read(**{**WITH_JOBS, path: value})
    elif name == "relay":
        read(**{"pools": [{"name": "core"}], "kubernetes": CLUSTER, path: value})
    elif name in OF_BROKER or name in ("workers", "pipeline"):
        on_cluster(**{"pools": [{"name": "core"}], "workers": {"core": WORKERS["core"]}, path: value})
    else:
        read(**{path: value})


RELAY: dict[str, Any] = {
    "redis": {"image": "redis:7.4"},
    "pools": ["core"],
    "clients": {"lax": {"certificates": ["lax"], "serve": ["core/LAX"]}},
    "settings": {"serve": {"plain_http": True}},
}


PLAIN = {"serve": {"plain_http": True}}


def in_bucket(**changes: str) -> dict[str, Any]:
    """Settings of a relay whose data streams are in a bucket."""
    s3 = {"endpoint": "https://s3.invalid", "bucket": "streams", **changes}
    return {"settings": {"streams": {"s3": s3}, **PLAIN}}


def in_directory() -> dict[str, Any]:
    """Those of one whose data streams would be in a directory."""
    return {"settings": {"streams": {"directory": "/mnt"}, **PLAIN}}


def with_relay(**changes: Any) -> StackSettings:
    """With a relay, at which the workers of one pool poll, and changes there."""
    given = {name: value for name, value in {**RELAY, **changes}.items() if value is not None}
    return read(kubernetes=CLUSTER, workers={"other": WORKERS["other"]}, relay=given)


def test_a_pool_whose_workers_poll_needs_no_workers_on_the_cluster() -> None:
    found = with_relay()

    assert [found.polls(pool) for pool in ("core", "other")] == [True, False]
    assert found.workers.keys() == {"other"}
    assert found.relay is not None
    assert (found.relay.nodes.replicas, found.relay.prefix) == (2, "osrdyne-relay")


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"pools": ["cor"]}, "relay.pools[0]", "'cor' is not a pool of this stack; its pools are core, other"),
        (
            {"settings": {"timing": {}, "serve": {"plain_http": True}}},
            "relay.settings.timing",
            "is not a setting; known are",
        ),
        ({"settings": {"serve": {"plain_http": True, "most": 0}}}, "relay.settings.serve.most", "greater than"),
        ({"settings": {"serve": {"port": 1}}}, "relay.settings.serve.port", "is made from other settings"),
        ({"settings": {"redis": {"url": "redis://a"}}}, "relay.settings.redis.url", "is made from other settings"),
        ({"settings": {}}, "relay.certificate", "is missing; give it, or set settings.serve.plain_http"),
        ({"clients": {"lax": {"call": ["*b"]}}}, "relay.clients.lax.call[0]", "only be the last character"),
        ({"clients": {client: {"certificates": ["x"]} for client in "ab"}}, "relay.clients", "of another client"),
        ({"clients_cacertfile": "/a"}, "relay.clients_cacertfile", "needs `certificate`"),
        ({"certificate": "/a"}, "relay.certificate", "osrdyne:relay_key"),
        (in_bucket(), "relay_s3_access_key", "and osrdyne:relay.settings.streams.s3 go together"),
        (in_bucket(ca_file="/a"), "relay.settings.streams.s3.ca_file", "is made from other settings"),
        (in_bucket(bucket="A"), "relay.settings.streams.s3.bucket", "should match"),
        ({"streams_cacertfile": "/a"}, "relay.streams_cacertfile", "give settings.streams.s3, too"),
        (in_directory(), "relay.settings.streams.directory", "is not a place that all pods have; use a bucket"),
        ({"settings": {"serve": None}}, "relay.settings.serve", "is not a table of a node's settings"),
        ({"settings": {"serve": {"plain_http": "false"}}}, "relay.certificate", "is missing; give it, or set settings"),
        ({"settings": {"redis": "redis://a", **PLAIN}}, "relay.settings.redis", "is not a table of a node's settings"),
        ({"settings": {"streams": 1, **PLAIN}}, "relay.settings.streams", "is not a table of directory, s3, keep"),
        ({"redis": {}}, "relay.redis.image", "is missing"),
    ],
)
def test_what_is_wrong_with_a_relay_is_named(changes: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        with_relay(**changes)

    assert f"osrdyne:{where}: " in str(caught.value)
    assert said in str(caught.value)


def test_a_relay_fits_its_stack() -> None:
    with pytest.raises(ConfigurationError, match="osrdyne:relay: is for a stack with osrdyne:kubernetes"):
        read(relay=RELAY)
    for name in ("relay_key", "relay_s3_access_key", "relay_s3_secret_key"):
        with pytest.raises(ConfigurationError, match=f"osrdyne:{name}: is for a stack with osrdyne:relay"):
            read(**{name: "hidden-word"})
    with pytest.raises(ConfigurationError, match=r"osrdyne:workers.core: polls at the relay; leave it out"):
        on_cluster(relay=RELAY)
    pools = [{"name": "relay"}]
    with pytest.raises(ConfigurationError, match="osrdyne:pools: 'relay' is a pool, whose namespace"):
        read(pools=pools, kubernetes=CLUSTER, relay={**RELAY, "pools": ["relay"]})
