"""What a pool with jobs gets on a cluster and on a database server, as Pulumi would get it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from osrdyne_pool.settings_file import read_pool
from osrdyne_pool.topology import Users
from osrdyne_protocol.names import DatabaseNames
from tests.infra import declaring
from tests.infra.declaring import JOBS, DeclaredObjects, settings
from tests.infra.test_kubernetes_declared import ALL_OF_IT, CLUSTER, changed, pod, reach, write

pytestmark = [pytest.mark.xdist_group("declared")]

NAMES = DatabaseNames.of("core", "Test 1")


@cache
def plain() -> DeclaredObjects:
    return declaring.pools(settings(**JOBS))


def of_core(found: DeclaredObjects) -> set[tuple[str, str]]:
    return {(kind, name) for kind, name in found.objects if name in ("core-redo", "core-jobs", "core-jobs-owner")}


def test_only_a_pool_with_jobs_has_a_database_and_redo() -> None:
    assert of_core(plain()) == {
        ("Deployment", "core-redo"),
        ("PodDisruptionBudget", "core-redo"),
        ("ConfigMap", "core-redo"),
        ("Secret", "core-redo"),
        ("Secret", "core-jobs"),
        ("Secret", "core-jobs-owner"),
    }
    assert set(plain().databases) == {NAMES.database}
    assert not any("redo" in name or "jobs" in name for _, name in plain().objects if name.startswith("other"))


def test_redo_reads_its_pool_and_addresses_where_they_are(tmp_path: Path) -> None:
    read = read_pool(write(plain(), "core-redo", tmp_path) / "settings.toml")
    assert read.redo().interval == 45

    [container] = pod(plain(), "core-redo")["containers"]
    words = container["command"]
    assert words[:3] == ["osrdyne", "jobs", "redo"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod(plain(), "core-redo")["volumes"]}
    for option in ("--broker-file", "--database-file"):
        folder, _, name = options[option].rpartition("/")
        assert name in plain().texts(volumes[mounts[folder]]["secret"]["secretName"])
    assert volumes[mounts[options["--settings"].rpartition("/")[0]]]["configMap"]["name"] == "core-redo"
    # The one folder that it may write to
    assert options["--ready-file"].startswith("/tmp/")
    assert "emptyDir" in volumes[mounts["/tmp"]]
    [_, _, look] = container["readinessProbe"]["exec"]["command"]
    assert options["--ready-file"] in look
    assert "-mmin -3" in look  # two intervals and a minute


def test_the_tables_are_brought_up_by_their_owner_before_redo_starts() -> None:
    spec = pod(plain(), "core-redo")
    [migration] = spec["initContainers"]
    assert migration["command"][:3] == ["osrdyne", "jobs", "migrate"]
    folder, _, name = migration["command"][-1].rpartition("/")
    [mount] = [mount["name"] for mount in migration["volumeMounts"] if mount["mountPath"] == folder]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == mount]
    assert volume["secret"]["secretName"] == "core-jobs-owner"
    assert name in plain().texts("core-jobs-owner")
    # And redo has not what the owner has
    assert mount not in [mount["name"] for mount in spec["containers"][0]["volumeMounts"]]


def test_both_containers_fit_the_restricted_standard_and_may_not_ask_the_cluster() -> None:
    spec = pod(plain(), "core-redo")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"] == {"memory": "256Mi"}


def test_the_database_is_asked_for_with_addresses_of_this_machine_and_pods_get_those_inside() -> None:
    asked = plain().databases[NAMES.database]
    # Pulumi marks what is secret by a table around it.
    given = {name: asked[name]["value"] for name in ("admin", "owner", "programs")}

    def address(user: str, word: str, place: str, database: str) -> str:
        return f"postgresql://{user}:{word}@{place}/{database}"

    database, owner = NAMES.database, NAMES.owner
    assert given == {
        "admin": "postgresql://postgres:hidden-admin@127.0.0.1:1/postgres",
        "owner": address(owner, f"word-of-{owner}", "127.0.0.1:1", database),
        "programs": address(database, f"word-of-{database}", "127.0.0.1:1", database),
    }
    assert asked["users"] == [NAMES.database, NAMES.owner]
    assert plain().texts("core-jobs") == {"jobs.address": address(database, f"word-of-{database}", "db:5433", database)}
    assert plain().texts("core-jobs-owner") == {
        "jobs-owner.address": address(owner, f"word-of-{owner}", "db:5433", database)
    }
    client = Users.of("core", "Test 1").client
    assert plain().texts("core-redo") == {"client.uri": f"amqp://{client}:word-of-{client}@broker/trains%2Fone"}


def test_a_pool_whose_database_has_no_room_for_its_whole_name_keeps_what_it_is_called() -> None:
    long, instance = "timetable-conflict-detection-engine", "dev-carol-laptop-2-garage"
    names = DatabaseNames.of(long, instance)
    assert not names.database.startswith(long)
    workers = {long: {"image": "osrdyne.invalid/core:1"}}
    found = declaring.pools(
        settings(**{**JOBS, "pools": [{"name": long, "jobs": {}}]}, instance=instance, workers=workers)
    )

    called = {name for kind, name in found.everything if kind.endswith((":Password", ":JobsDatabase"))}
    assert {names.database, names.owner} <= called
    assert set(found.databases) == {names.database}
    assert not any(name.startswith(long + long[:24]) for _, name in found.everything)


def test_passwords_are_in_secrets_and_the_administrators_in_none() -> None:
    for (kind, name), made in plain().objects.items():
        if kind != "Secret":
            assert "word-of" not in json.dumps(made)
        elif name.startswith("core-"):
            assert "hidden-admin" not in json.dumps(plain().texts(name))
        assert "hidden-admin" not in json.dumps(made)


def test_workers_find_the_address_of_their_jobs_in_a_file() -> None:
    for name, has in (("core", True), ("other", False)):
        made = yaml.safe_load(plain().objects["ConfigMap", f"{name}-workers"]["data"]["deployment.yaml"])
        spec = made["spec"]["template"]["spec"]
        environment = {variable["name"]: variable["value"] for variable in spec["containers"][0]["env"]}
        assert ("OSRDYNE_JOBS_DATABASE_FILE" in environment) == has
        if has:
            folder, _, key = environment["OSRDYNE_JOBS_DATABASE_FILE"].rpartition("/")
            [mount] = [mount["name"] for mount in spec["containers"][0]["volumeMounts"] if mount["mountPath"] == folder]
            [secret] = [volume["secret"]["secretName"] for volume in spec["volumes"] if volume["name"] == mount]
            assert key in plain().texts(secret)


def test_a_worker_may_name_another_file() -> None:
    workers = {"core": {"image": "a:1", "env": {"OSRDYNE_JOBS_DATABASE_FILE": "/mine"}}, "other": {"image": "a:1"}}
    found = declaring.pools(settings(**JOBS, workers=workers))

    made = yaml.safe_load(found.objects["ConfigMap", "core-workers"]["data"]["deployment.yaml"])
    environment = made["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [variable["value"] for variable in environment if variable["name"] == "OSRDYNE_JOBS_DATABASE_FILE"] == [
        "/mine"
    ]


def test_changed_settings_of_redo_restart_redo_and_no_daemon() -> None:
    pools = [{"name": "core", "jobs": {"redo": {"interval": 46, "lease": 100}}}, {"name": "other"}]
    after = declaring.pools(settings(**{**JOBS, "pools": pools}))

    assert changed(plain(), after) == {("ConfigMap", "core-redo"), ("Deployment", "core-redo")}


def test_a_pool_that_gets_jobs_changes_nothing_of_other_pools() -> None:
    before = declaring.pools(settings())

    different = changed(before, plain())
    assert different - of_core(plain()) == {("ConfigMap", "core-workers"), ("Deployment", "core-daemon")}


def test_redo_and_workers_reach_the_database_and_daemons_do_not() -> None:
    access = {**ALL_OF_IT["kubernetes"]["network_policy"], "database": ["10.3.0.0/16"]}
    kubernetes = {**ALL_OF_IT["kubernetes"], "network_policy": access}
    found = declaring.pools(settings(**JOBS, kubernetes=kubernetes))

    policies = {name: found.objects["NetworkPolicy", f"core-{name}"]["spec"] for name in ("daemon", "redo", "workers")}
    assert reach(policies["redo"]) == {"everywhere:53", "10.1.0.0/16:5672", "10.3.0.0/16:5433"}
    assert reach(policies["workers"]) == {"everywhere:53", "10.1.0.0/16:5672", "10.3.0.0/16:5433", "10.2.0.0/16:any"}
    assert "10.3.0.0/16:5433" not in reach(policies["daemon"])
    assert policies["redo"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policies["redo"]
    # Every pod is one of the three.
    [chosen] = policies["workers"]["podSelector"]["matchExpressions"]
    chosen_names = {policies[program]["podSelector"]["matchLabels"][chosen["key"]] for program in ("daemon", "redo")}
    assert set(chosen["values"]) == chosen_names
    labels = found.objects["Deployment", "core-redo"]["spec"]["template"]["metadata"]["labels"]
    assert policies["redo"]["podSelector"]["matchLabels"].items() <= labels.items()
    # And a pool without jobs does not reach it
    assert not any("10.3" in address for address in reach(found.objects["NetworkPolicy", "other-workers"]["spec"]))


def test_the_pods_are_as_many_and_as_large_as_they_are_set() -> None:
    redo = {"replicas": 1, "image": "osrdyne.invalid/redo:2", "resources": {"limits": {"memory": "1Gi"}}}
    found = declaring.pools(settings(**{**JOBS, "jobs": {**JOBS["jobs"], "redo": redo}}))

    assert found.objects["Deployment", "core-redo"]["spec"]["replicas"] == 1
    assert ("PodDisruptionBudget", "core-redo") not in found.objects
    [container] = pod(found, "core-redo")["containers"]
    assert (container["image"], container["resources"]["limits"]) == ("osrdyne.invalid/redo:2", {"memory": "1Gi"})
    [by_default] = pod(plain(), "core-redo")["containers"]
    assert by_default["image"] == CLUSTER["daemon"]["image"]


def test_a_databases_own_authority_is_beside_the_address_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "db.pem").write_text("a certificate\n")
    jobs: dict[str, Any] = {**JOBS["jobs"], "cacertfile": str(tmp_path / "db.pem")}
    found = declaring.pools(settings(**{**JOBS, "jobs": jobs}))

    for secret, file in (("core-jobs", "jobs.address"), ("core-jobs-owner", "jobs-owner.address")):
        texts = found.texts(secret)
        assert texts["ca.pem"] == "a certificate\n"
        assert texts[file].endswith("?sslmode=verify-full&sslrootcert=/etc/osrdyne/jobs/ca.pem")
    asked = found.databases[NAMES.database]["admin"]["value"]
    assert asked.endswith(f"/postgres?sslmode=verify-full&sslrootcert={tmp_path}/db.pem")
