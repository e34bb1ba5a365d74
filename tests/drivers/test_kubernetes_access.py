"""The daemon's ServiceAccount may do what the driver does, and nothing else: everything else is tried."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from osrdyne.errors import DriverError
from testbed.kubernetes.cluster import ClusterFailed
from tests.drivers.subjects.kubernetes import ACCOUNT, NAMESPACE, ROLES, SECRET, KubernetesSubject, grant

# The first test may have to build the cluster.
pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]


def rules() -> set[tuple[str, str]]:
    """Each resource and verb of the Roles that the daemon is given."""
    found = set()
    for file in ROLES.glob("role*.yaml"):
        for rule in yaml.safe_load(file.read_text())["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name = f"{resource}.{group}" if group else resource
                    found |= {(name, verb) for verb in rule["verbs"]}
    return found


def as_daemon(kube: KubernetesSubject, *arguments: str, stdin: str | None = None) -> str:
    return kube.cluster.kubectl(*arguments, stdin=stdin, kubeconfig=kube.kubeconfig)


def allowed(kube: KubernetesSubject) -> set[tuple[str, str]]:
    """What the API server lets the daemon do in its namespace, without what it lets every user do."""
    found = set()
    for line in as_daemon(kube, "-n", NAMESPACE, "auth", "can-i", "--list", "--no-headers").splitlines():
        resource, *_, verbs = re.split(r"\s{2,}", line)
        if not resource.startswith(("self", "/", "[")) and resource:
            found |= {(resource, verb) for verb in verbs.strip("[]").split()}
    return found


def test_the_daemon_may_do_what_its_roles_say_and_no_more(kube: KubernetesSubject) -> None:
    assert allowed(kube) == rules()
    # In another namespace, and of the cluster as a whole, nothing.
    for line in as_daemon(kube, "-n", "default", "auth", "can-i", "--list", "--no-headers").splitlines():
        assert re.match(r"self|\s", line), line


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "secret", SECRET),
        ("get", "secrets"),
        ("get", "configmaps"),
        ("get", "deployments", "--namespace=default"),
        ("get", "deployments", "--all-namespaces"),
        ("get", "pods", "--namespace=kube-system"),
        ("get", "nodes"),
        ("get", "namespaces"),
        ("get", "events"),
        ("get", "--raw", "/metrics"),
        ("delete", "namespace", NAMESPACE),
        ("delete", "pod", "mine"),
        ("delete", "secret", SECRET),
        ("run", "mine", "--image=osrdyne.invalid/worker:test"),
        ("create", "token", ACCOUNT),
        ("create", "configmap", "mine"),
        ("create", "rolebinding", "mine", "--clusterrole=admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}"),
        ("create", "clusterrolebinding", "mine", "--clusterrole=admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}"),
        ("patch", "role", "osrdyne", "--type=json", '--patch=[{"op": "remove", "path": "/rules/0"}]'),
        ("get", "pods", "--as=system:admin"),
        ("get", "pods", "--as=system:serviceaccount:kube-system:default"),
    ],
    ids=" ".join,
)
def test_what_the_driver_does_not_need_is_forbidden(kube: KubernetesSubject, arguments: tuple[str, ...]) -> None:
    with pytest.raises(ClusterFailed, match=r"[Ff]orbidden"):
        as_daemon(kube, *arguments)


async def test_the_daemon_may_neither_enter_nor_read_nor_scale_its_workers(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await kube.ready(driver, "a")
    [pod] = kube.pods("a")
    name, group = pod["metadata"]["name"], kube.group("a")
    for arguments in (
        ("exec", name, "--", "true"),
        ("logs", name),
        ("attach", name),
        ("port-forward", name, ":80"),
        ("delete", "pod", name),
        ("label", "pod", name, "a=b"),
        ("scale", "deployment", group, "--replicas=0"),
    ):
        with pytest.raises(ClusterFailed, match=r"[Ff]orbidden"):
            as_daemon(kube, *arguments)


@pytest.fixture
def stranger(kube: KubernetesSubject) -> Iterator[Path]:
    """A ServiceAccount without any Role."""
    metadata = {"name": "stranger", "namespace": NAMESPACE}
    kube.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    yield kube.cluster.kubeconfig_of(NAMESPACE, "stranger")
    kube.kubectl("delete", "serviceaccount", "stranger")


async def test_a_daemon_without_rights_says_which_it_needs_and_no_token(
    kube: KubernetesSubject, stranger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = kube.driver_of(kube.declared(), kubeconfig=stranger, timeout=1)
    for attempt in (driver.list(), driver.start("a"), driver.stop("a")):
        with pytest.raises(
            DriverError, match=r"forbidden: User .* cannot list .*; allow it in the daemon's Role"
        ) as refused:
            await attempt
        assert token(stranger) not in str(refused.value) + repr(refused.value.__cause__)
    await driver.close()
    assert token(stranger) not in caplog.text


def without(kube: KubernetesSubject, resource: str, verb: str) -> Path:
    """A ServiceAccount that may do all but this."""
    name = f"no-{verb}-{resource.partition('.')[0]}"
    kube.cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
    )
    for file in ROLES.glob("role*.yaml"):
        role = yaml.safe_load(file.read_text())
        role["metadata"]["name"] += f"-{name}"
        for rule in role["rules"]:
            if resource.partition(".")[0] in rule["resources"]:
                rule["verbs"].remove(verb)
        grant(kube.cluster, role, account=name)
    return kube.cluster.kubeconfig_of(NAMESPACE, name)


@pytest.mark.parametrize(
    ("resource", "verb"), sorted(rule for rule in rules() if not rule[0].startswith("scaledobjects")), ids=str
)
async def test_no_right_can_be_taken_away(
    kube: KubernetesSubject, resource: str, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = without(kube, resource, verb)
    scaler = {"spec": {"minReplicas": 1, "maxReplicas": 2}}
    driver = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=scaler, kubeconfig=file, timeout=2)
    said = ""
    for _ in range(100):
        try:
            await driver.start("a")
            await driver.list()
            await driver.stop("a")
        except DriverError as error:
            said += str(error)
        said += "".join(getattr(record, "reason", "") for record in caplog.records)
        if f"cannot {verb} resource" in said:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{verb} {resource} was not needed: {said}")


def token(kubeconfig: Path) -> str:
    found: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    return str(found["users"][0]["user"]["token"])
