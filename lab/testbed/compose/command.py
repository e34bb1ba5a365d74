"""`docker compose` for one engine: the plugin, in a folder that `docker` reads its settings from."""

from __future__ import annotations

from pathlib import Path

from testbed.docker import Docker
from testbed.go_builds import Recipe, built

_VERSION = "v2.40.3"
RECIPE = Recipe(
    Path(__file__).parent / "plugin",
    {"docker-compose": "github.com/docker/compose/v2/cmd"},
    stamps=(f"-X github.com/docker/compose/v2/internal.Version={_VERSION}",),
)


def program() -> Path:
    """Return the plugin, built unless it is there: minutes on two cores. Raises BuildFailed and NoGo."""
    return built("compose", RECIPE) / "docker-compose"


def environment(docker: Docker, folder: Path) -> dict[str, str]:
    """Return the variables with which `docker compose` works on an engine; the folder gets what `docker` reads."""
    plugins = folder / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(program())
    return {**docker.environment, "DOCKER_CONFIG": str(folder)}
