"""Every secret that the program is given, or makes, goes to Pulumi as a secret, which its state keeps encrypted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from osrdyne_infra import preflight
from osrdyne_infra.guard import Claim, Guard, StopGuard
from osrdyne_infra.limits import Limits
from osrdyne_infra.mend import Mend
from tests.infra import declaring
from tests.infra.declaring import JOBS, RELAY, WHOLE, DeclaredObjects, Inputs, settings

# One process imports Pulumi's Kubernetes library, which takes seconds.
pytestmark = [pytest.mark.xdist_group("declared")]

#: By which Pulumi marks a table that holds a secret.
MARK = "4dabf18193072939515e22adb298388d"
HIDDEN = {
    "admin_password": "hidden-word",
    "jobs_admin_password": "hidden-admin",
    "kubeconfig": "hidden-kubeconfig",
    "pipeline_s3_access_key": "hidden-pipeline",
    "pipeline_s3_secret_key": "hidden-of-pipeline",
    "relay_key": "hidden-key",
    "relay_s3_access_key": "hidden-access",
    "relay_s3_secret_key": "hidden-secret",
}
#: How all of them begin, and what `DeclaredObjects` has for passwords that the program makes; as they are and in base64.
WORDS = ("hidden-", "word-of-", "aGlkZGVu", "d29yZC1v")


def open_parts(value: Any) -> Any:
    """What is not marked as a secret."""
    if isinstance(value, dict):
        return "secret" if MARK in value else {name: open_parts(each) for name, each in value.items()}
    return [open_parts(each) for each in value] if isinstance(value, list) else value


def shown(found: DeclaredObjects) -> list[tuple[str, str]]:
    """Type and name of what shows a secret."""
    return [name for name, inputs in found.everything.items() if any(word in _text(inputs) for word in WORDS)]


def _text(inputs: Inputs) -> str:
    return json.dumps(open_parts(inputs), default=str)


def test_no_part_of_a_stack_of_pools_shows_a_secret(tmp_path: Path) -> None:
    (tmp_path / "node.pem").write_text("certificate")
    s3 = {"endpoint": "https://s3.invalid", "bucket": "maps"}
    relay = {
        **RELAY["relay"],
        "certificate": str(tmp_path / "node.pem"),
        "settings": {"streams": {"s3": s3}},
    }
    pipeline = {"image": "osrdyne.invalid/pipeline:1", "lake": "s3://analytics"}
    workers = {"other": {**WHOLE["workers"]["other"], "autoscaling": "keda"}}
    given = settings(**{**JOBS, **RELAY, "workers": workers, "relay": relay, "pipeline": pipeline, **HIDDEN})

    found = declaring.pools(given)

    assert ("pulumi:providers:kubernetes", "cluster") in found.everything
    assert len(found.everything) > 60
    assert shown(found) == []


def test_no_resource_that_asks_the_broker_shows_a_secret() -> None:
    given = settings()

    def declare() -> None:
        topologies = preflight.topologies(given)
        nothing = pulumi.ResourceOptions()
        Claim("claim", given, [], nothing)
        Guard("guard", given, "core", nothing)
        StopGuard("last", given, "core", nothing)
        Limits("limits", given, topologies, nothing)
        Mend("core", given, topologies[0], (), nothing)

    found = declaring.declared(declare)

    assert len([name for kind, name in found.everything if "dynamic" in kind]) == 5
    assert shown(found) == []


def test_no_part_of_a_stack_of_a_broker_shows_a_secret() -> None:
    found = declaring.deployed(declaring.broker_settings())

    assert found.texts("broker-admin")["password"] == "hidden-word"
    assert shown(found) == []
