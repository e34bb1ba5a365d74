"""A test cluster, by hand: `python -m testbed.kubernetes up --dir DIR`, and `down`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from testbed.kubernetes import building, images
from testbed.kubernetes.cluster import Cluster, ClusterFailed
from testbed.waiting import until


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.kubernetes", description=(__doc__ or ""))
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build everything that is not in the cache yet, add-ons included")
    verbs.add_parser("up", help="start a cluster that stays; prints how to reach it")
    verbs.add_parser("keda", help="start KEDA in it")
    verbs.add_parser("metrics-server", help="start metrics-server in it")
    verbs.add_parser("down", help="end it and remove all that it made")
    for name, verb in verbs.choices.items():
        if name != "build":
            verb.add_argument("--dir", type=Path, required=True, help="its directory; `up` makes it")
    arguments = parser.parse_args()
    directory = arguments.dir.absolute() if arguments.verb != "build" else Path()
    try:
        match arguments.verb:
            case "build":
                build()
            case "up":
                up(directory)
            case "down":
                down(directory)
            case "keda":
                running(directory).start_keda()
            case "metrics-server":
                running(directory).start_metrics_server()
    except (RuntimeError, AssertionError, OSError) as error:
        sys.exit(f"kubernetes {arguments.verb}: {error}")


def build() -> None:
    for name in building.RECIPES:
        print(building.binaries(name))
    print(images.base().content)


def up(directory: Path) -> None:
    """The keeper waits at a pipe in the directory, which `down` writes to."""
    if directory.exists():
        raise ClusterFailed(
            f"{directory} is there already; `down` ends the cluster in it, another --dir starts a second"
        )
    directory.mkdir(parents=True)
    os.mkfifo(directory / "stop")
    # Open for writing as well, so that it does not end when the last writer does.
    stop = os.open(directory / "stop", os.O_RDWR)
    cluster = Cluster(directory)
    try:
        cluster.start(stop=stop)
    except BaseException:
        os.write(stop, b"x")
        raise
    print(f"export KUBECONFIG={cluster.kubeconfig}\n# pods reach this machine at {cluster.gateway}")


def running(directory: Path) -> Cluster:
    if not (directory / "stop").exists():
        raise ClusterFailed(f"there is no cluster in {directory}; `up` starts one")
    return Cluster(directory)


def down(directory: Path) -> None:
    running(directory)
    stop = os.open(directory / "stop", os.O_RDWR)
    os.write(stop, b"x")
    until(lambda: not directory.exists(), every=0.1, what=f"{directory} to be gone")


if __name__ == "__main__":
    main()
