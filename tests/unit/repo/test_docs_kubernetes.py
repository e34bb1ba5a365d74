"""What docs/howto/driver-kubernetes.md shows is what is tested: the Role, and a ScaledObject that is taken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import steps
from osrdyne.drivers.kubernetes.template import load

PAGE = Path(steps.ROOT, "docs/howto/driver-kubernetes.md").read_text()
ROLES = Path(steps.ROOT, "tests/drivers/kubernetes")


def shown(kind: str) -> dict[str, Any]:
    manifests = [yaml.safe_load(match) for match in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    return next(manifest for manifest in manifests if manifest["kind"] == kind)


def test_the_role_is_the_one_that_the_tests_run_with() -> None:
    assert shown("Role") == yaml.safe_load((ROLES / "role.yaml").read_text())


@pytest.mark.parametrize(
    ("file", "group", "resource"),
    [("role-hpa", "autoscaling", "horizontalpodautoscalers"), ("role-keda", "keda.sh", "scaledobjects")],
)
def test_an_autoscaler_needs_the_same_verbs_as_a_deployment(file: str, group: str, resource: str) -> None:
    verbs = shown("Role")["rules"][0]["verbs"]
    found = yaml.safe_load((ROLES / f"{file}.yaml").read_text())["rules"]
    assert found == [{"apiGroups": [group], "resources": [resource], "verbs": verbs}]


def test_the_scaled_object_is_taken(tmp_path: Path) -> None:
    worker = {"spec": {"template": {"spec": {"containers": [{"name": "worker"}]}}}}
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump(worker))
    (tmp_path / "scaledobject.yaml").write_text(yaml.safe_dump(shown("ScaledObject")))
    assert load(tmp_path, autoscaling="keda", container=None).scaler == shown("ScaledObject")
