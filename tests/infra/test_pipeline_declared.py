"""What a pool gets on a cluster for a pipeline that runs by itself, as Pulumi would get it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from osrdyne_infra.errors import ConfigurationError
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pool.settings_file import read_pool
from osrdyne_pool.topology import Users
from tests.infra import declaring
from tests.infra.declaring import DeclaredObjects, settings
from tests.infra.test_kubernetes_declared import ALL_OF_IT, changed, reach, write

pytestmark = [pytest.mark.xdist_group("declared")]

GIVEN: dict[str, Any] = {"image": "osrdyne.invalid/pipeline:1", "pools": ["core"], "time_limit": 600}
STORE = {"lake": "s3://analytics/osrdyne", "s3_endpoint": "https://s3.invalid:9000", "s3_region": "eu-1"}
KEYS = {"pipeline_s3_access_key": "hidden-id", "pipeline_s3_secret_key": "hidden-key"}
POOLS = [{"name": "core", "unbind_delay": 42}, {"name": "other"}]


@cache
def plain() -> DeclaredObjects:
    return declaring.pools(settings(pools=POOLS, pipeline=GIVEN))


def cron_job() -> dict[str, Any]:
    found: dict[str, Any] = plain().objects["CronJob", "core-pipeline"]["spec"]
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = cron_job()["jobTemplate"]["spec"]["template"]["spec"]
    return found


def test_only_a_pool_that_is_named_has_a_pipeline_and_nothing_else_changes() -> None:
    before = declaring.pools(settings(pools=POOLS))

    kinds = ("CronJob", "ConfigMap", "Secret", "PersistentVolumeClaim")
    assert changed(before, plain()) == {(kind, "core-pipeline") for kind in kinds}


def test_runs_do_not_overlap_are_bounded_and_few_are_kept() -> None:
    spec = cron_job()
    assert spec["schedule"] == "10 3 * * *"
    assert spec["concurrencyPolicy"] == "Forbid"
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 3)
    job = spec["jobTemplate"]["spec"]
    # The command ends by itself before its job is ended
    assert job["activeDeadlineSeconds"] > GIVEN["time_limit"]
    assert job["backoffLimit"] == 0
    assert pod()["restartPolicy"] == "Never"


def test_a_run_has_no_privileges_and_writes_to_its_volume_and_its_scratch_folder_only() -> None:
    [container] = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    assert {mount["name"] for mount in container["volumeMounts"] if not mount["readOnly"]} == {"lake", "tmp"}
    [lake] = [volume for volume in pod()["volumes"] if volume["name"] == "lake"]
    assert lake["persistentVolumeClaim"]["claimName"] == "core-pipeline"


def test_a_run_reads_the_delays_of_today_and_the_address_of_its_own_user(tmp_path: Path) -> None:
    assert read_pool(write(plain(), "core-pipeline", tmp_path) / "settings.toml").unbind_delay == 42
    user = Users.of("core", "Test 1").pipeline
    assert plain().texts("core-pipeline") == {"pipeline.uri": f"amqp://{user}:word-of-{user}@broker/trains%2Fone"}

    [container] = pod()["containers"]
    words = container["command"]
    assert words[:3] == ["osrdyne", "pipeline", "run"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    for option, kind, source in (
        ("--uri-file", "secret", {"secretName": "core-pipeline"}),
        ("--settings", "configMap", {"name": "core-pipeline"}),
    ):
        folder = options[option].rpartition("/")[0]
        assert source.items() <= volumes[mounts[folder]][kind].items()
    assert mounts[options["--lake"]] == "lake"
    assert options["--time-limit"] == "600"
    # And the command knows each of these words
    help_ = CliRunner().invoke(PIPELINE, ["run", "--help"], env={"COLUMNS": "200"}).stdout
    assert [option for option in options if option not in help_] == []


def test_a_pipeline_reaches_the_broker_and_nothing_else() -> None:
    found = declaring.pools(settings(**ALL_OF_IT, pipeline=GIVEN))

    policy = found.objects["NetworkPolicy", "core-pipeline"]["spec"]
    assert reach(policy) == {"everywhere:53", "10.1.0.0/16:5672"}
    assert "ingress" not in policy
    labels = found.objects["CronJob", "core-pipeline"]["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    [others] = found.objects["NetworkPolicy", "core-workers"]["spec"]["podSelector"]["matchExpressions"]
    assert labels[others["key"]] in others["values"]
    assert ("NetworkPolicy", "other-pipeline") not in found.objects


def test_in_an_object_store_a_run_has_its_keys_and_no_volume() -> None:
    given = settings(**ALL_OF_IT, pipeline={**GIVEN, **STORE}, **KEYS)

    found = declaring.pools(given)

    assert ("PersistentVolumeClaim", "core-pipeline") not in found.objects
    spec = found.objects["CronJob", "core-pipeline"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    words = container["command"]
    assert words[words.index("--lake") + 1] == STORE["lake"]
    assert {mount["name"] for mount in container["volumeMounts"] if not mount["readOnly"]} == {"tmp"}
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["AWS_ENDPOINT_URL"]["value"] == STORE["s3_endpoint"]
    assert variables["AWS_REGION"]["value"] == STORE["s3_region"]
    texts = found.texts("core-pipeline")
    for variable, setting in (("AWS_ACCESS_KEY_ID", "access_key"), ("AWS_SECRET_ACCESS_KEY", "secret_key")):
        key = variables[variable]["valueFrom"]["secretKeyRef"]
        assert key["name"] == "core-pipeline"
        assert texts[key["key"]] == KEYS[f"pipeline_s3_{setting}"]
    # No file has them
    [credentials] = [volume for volume in spec["volumes"] if volume["name"] == "credentials"]
    assert [item["key"] for item in credentials["secret"]["items"]] == ["pipeline.uri"]
    # It reaches the store, whose address a policy cannot name
    policy = found.objects["NetworkPolicy", "core-pipeline"]["spec"]
    assert reach(policy) == {"everywhere:53", "10.1.0.0/16:5672", "everywhere:9000"}


def test_without_keys_the_store_knows_the_pod() -> None:
    found = declaring.pools(settings(pipeline={**GIVEN, "lake": "s3://analytics"}))

    [container] = found.objects["CronJob", "core-pipeline"]["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert not container.get("env")
    assert set(found.texts("core-pipeline")) == {"pipeline.uri"}


@pytest.mark.parametrize(
    "keys, lake, where, said",
    [
        (KEYS, {}, "pipeline_s3_access_key", "pipeline.lake"),
        ({"pipeline_s3_secret_key": "b"}, STORE, "pipeline_s3_access_key", "has two parts"),
        ({"pipeline_s3_access_key": "a"}, STORE, "pipeline_s3_secret_key", "has two parts"),
    ],
)
def test_keys_of_a_bucket_that_do_not_fit_are_named(
    keys: dict[str, str], lake: dict[str, str], where: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        settings(pipeline={**GIVEN, **lake}, **keys)
    assert caught.value.path == f"osrdyne:{where}"


@pytest.mark.parametrize(
    "wrong, where, said",
    [
        ({"pools": ["cor"]}, "pipeline.pools[0]", "'cor' is not a pool of this stack"),
        ({"image": "a/b"}, "pipeline.image", "names no version"),
        ({"memory": "much"}, "pipeline.memory", "512m or 2g"),
        ({"time_limit": 5}, "pipeline.time_limit", "60 or more"),
        ({"storage": "big"}, "pipeline.storage", "is not an amount"),
        ({"storage": "0Gi"}, "pipeline.storage", "is not the size of a disk"),
        ({"every": "day"}, "pipeline.every", "known are"),
        ({"lake": "/mnt/lake"}, "pipeline.lake", "give s3://BUCKET/PREFIX, or none for a volume"),
        ({"s3_region": "eu-1"}, "pipeline.s3_region", "give `lake`, too"),
        ({"lake": "s3://bucket", "storage": "1Gi"}, "pipeline.storage", "leave it out"),
    ],
)
def test_what_is_wrong_with_a_pipeline_is_named(wrong: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("[", r"\[")) as caught:
        settings(pipeline={**GIVEN, **wrong})
    assert caught.value.path == f"osrdyne:{where}"


def test_a_pipeline_without_a_cluster_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is for a stack with osrdyne:kubernetes"):
        settings(pipeline=GIVEN, kubernetes=None, workers=None)
