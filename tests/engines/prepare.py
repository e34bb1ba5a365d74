"""Build what the engines of some tiers are made of, before those tiers run: `python -m tests.engines.prepare drivers`.

On a new machine that takes a quarter of an hour of two cores, and the tiers that come first wait more than they
compute. Nothing depends on it: who needs a program builds it, or waits for whoever does (go_builds.py), and says why
it could not be built. On a machine that has everything, this ends at once.
"""

from __future__ import annotations

import os
import signal
import sys

from tests.engines.go_builds import BuildFailed
from tests.engines.kubernetes import building
from tests.engines.kubernetes.golang import NoGo
from tests.engines.pulumi.building import programs

#: Tier -> the modules of the cluster that it needs, in the order of their need.
MODULES = {"drivers": tuple(building.RECIPES), "infra": ("kubernetes", "etcd", "coredns")}


def main(tiers: list[str]) -> None:
    os.nice(10)
    # So that what is half built is removed when the tests have ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for name in dict.fromkeys(name for tier in tiers for name in MODULES.get(tier, ())):
            building.binaries(name)
        if "infra" in tiers:
            programs()
    except (BuildFailed, NoGo, OSError) as error:
        print(f"prepare: {error}; the tests that need it try again", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
