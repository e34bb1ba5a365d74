"""What Pulumi consists of: `programs()` are the folders to put on PATH.

Nothing here is downloaded as a binary. Cold, on four cores that were busy with other builds: the command 7 minutes, the
provider for RabbitMQ 6, that for Kubernetes 10, the host one; 380 MB in the cache, beside Go's own caches.
"""

from __future__ import annotations

from pathlib import Path

from testbed.go_builds import Recipe, built

MODULES = Path(__file__).parent / "modules"
#: Of the command, and of its Kubernetes provider: those of the Python packages in requirements.lock.
VERSION, KUBERNETES = "v3.260.0", "v4.34.2"
#: The module that has the Python host, and the scripts that belong beside it.
HOST = "github.com/pulumi/pulumi/sdk/v3"

RECIPES = (
    Recipe(
        MODULES / "cli",
        {"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        # A program may ask which version runs it, and refuses one without.
        stamps=(f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={VERSION}",),
    ),
    Recipe(
        MODULES / "python-host",
        {"pulumi-language-python": f"{HOST}/python/cmd/pulumi-language-python"},
        scripts={
            "pulumi-language-python-exec": (HOST, "python/cmd/pulumi-language-python-exec"),
            "pulumi-resource-pulumi-python": (HOST, "python/dist/pulumi-resource-pulumi-python"),
        },
    ),
    Recipe(
        MODULES / "rabbitmq",
        {"tfgen": "./tfgen", "pulumi-resource-rabbitmq": "./plugin"},
        commands=(("tfgen", "schema", "--out", "."),),
    ),
    # The newest source that the module proxy has. It is older than the version that it says to be; see `released`.
    Recipe(
        MODULES / "kubernetes",
        {"pulumi-resource-kubernetes": "."},
        stamps=(f"-X main.version={KUBERNETES.removeprefix('v')}",),
    ),
)

#: The host of programs in YAML, which need no toolchain of their own: those of another language than ours.
YAML = Recipe(
    MODULES / "yaml-host",
    {"pulumi-language-yaml": "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"},
)


def yaml_host() -> Path:
    """Return the folder of the host of YAML, built unless it is there. Raises BuildFailed and GoMissing."""
    return built("pulumi", YAML)


def released() -> Path | None:
    """Return the folder of the Kubernetes provider that users have, where Pulumi has installed it on this machine.

    `pulumi plugin install resource kubernetes VERSION` does that. The one that is built otherwise is older than 4.29.
    It takes over objects that are there without `upsertExistingObjects`, and forces patches by a variable only.
    """
    folder = Path.home() / ".pulumi/plugins" / f"resource-kubernetes-{KUBERNETES}"
    return folder if (folder / "pulumi-resource-kubernetes").exists() else None


def programs() -> list[Path]:
    """Return the folders with Pulumi's programs, built unless they are there. Raises BuildFailed and NoGo."""
    *others, kubernetes = RECIPES
    return [*(built("pulumi", recipe) for recipe in others), released() or built("pulumi", kubernetes)]
