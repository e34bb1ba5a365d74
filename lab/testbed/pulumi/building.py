"""What Pulumi consists of: `programs()` are the folders to put on PATH.

Nothing here is downloaded as a binary. Cold, on four cores that were busy with other builds: the command 7 minutes, the
provider 6, the host one; 215 MB in the cache, beside Go's own caches.
"""

from __future__ import annotations

from pathlib import Path

from testbed.go_builds import Recipe, built

MODULES = Path(__file__).parent / "modules"
#: Scripts of ours that stand for what cannot be built.
PLUGINS = Path(__file__).parent / "plugins"
VERSION = "v3.259.0"
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
)


def programs() -> list[Path]:
    """Return the folders with Pulumi's programs, built unless they are there. Raises BuildFailed and NoGo."""
    return [*(built("pulumi", recipe) for recipe in RECIPES), PLUGINS]
