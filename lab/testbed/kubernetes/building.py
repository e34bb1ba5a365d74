"""The cluster's programs, built once a machine: `binaries("kubernetes")` is a folder of them.

Cold, on four cores with nothing else to do: kubernetes 4 minutes, keda 5, the others under one each; 1.1 GB in the
cache, beside Go's own caches.
"""

from __future__ import annotations

from pathlib import Path

from testbed import go_builds
from testbed.go_builds import Recipe

MODULES = Path(__file__).parent / "modules"
KUBERNETES = "1.34.1"
COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
KEDA = "github.com/kedacore/keda/v2"
#: Definitions of KEDA's resources, without which its operator does not start.
KEDA_RESOURCES = (
    "eventing.keda.sh_cloudeventsources.yaml",
    "eventing.keda.sh_clustercloudeventsources.yaml",
    "keda.sh_clustertriggerauthentications.yaml",
    "keda.sh_scaledjobs.yaml",
    "keda.sh_scaledobjects.yaml",
    "keda.sh_triggerauthentications.yaml",
)


def _version_stamps() -> tuple[str, ...]:
    """Without them clients cannot parse the server's version."""
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    values |= {"gitCommit": "0", "buildDate": "2025-09-10T00:00:00Z"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


RECIPES = {
    "kubernetes": Recipe(
        MODULES / "kubernetes",
        {**{name: f"k8s.io/kubernetes/cmd/{name}" for name in COMMANDS}, "pause": "./pause"},
        _version_stamps(),
    ),
    "etcd": Recipe(MODULES / "etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    "coredns": Recipe(MODULES / "coredns", {"coredns": "."}),
    "metrics-server": Recipe(
        MODULES / "metrics-server", {"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"}
    ),
    "keda": Recipe(
        MODULES / "keda",
        {f"keda-{name}": f"{KEDA}/cmd/{name}" for name in ("operator", "adapter")},
        scripts={name: (KEDA, f"config/crd/bases/{name}") for name in KEDA_RESOURCES},
    ),
}


def cache() -> Path:
    """The folder of everything that the cluster is made of."""
    return go_builds.cache() / "kubernetes"


def binaries(name: str) -> Path:
    """The folder with a module's programs, built unless they are there.

    Another process that builds the same is waited for. Raises go_builds.BuildFailed and golang.GoMissing.
    """
    return go_builds.built("kubernetes", RECIPES[name])
