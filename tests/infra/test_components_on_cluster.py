"""Components on a real cluster, over a stack that an earlier program made.

tests/release/test_first_pulumi.py has them in a program that is not ours.
"""

from __future__ import annotations

import re

import pytest

from tests.infra.clustered import OnCluster, prometheus_operator
from tests.infra.test_components import FORMER, made_by, made_by_ours

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]


def test_a_stack_that_the_former_program_made_keeps_every_resource(fresh: OnCluster) -> None:
    prometheus_operator(fresh.cluster)
    fresh.values["kubernetes"] |= {
        "monitoring": "prometheus-operator",
        "network_policy": {"broker": [f"{fresh.cluster.gateway}/32"]},
    }
    fresh.configure()
    made_by(fresh, FORMER)
    fresh.must_up()
    leader = fresh.settled("core")

    made_by_ours(fresh)
    done = fresh.must_up()

    # What watches it is newer, and settings are shorter; so daemons restart. No resource is made, deleted or replaced
    changed = set(re.findall(r"^ *[@+~-]+ +(kubernetes:\S+ \S+) (?:creat|updat|delet|replac)", done.text, re.MULTILINE))
    assert {resource.rpartition(":")[2] for resource in changed} <= {
        "PrometheusRule core-daemon-prometheusrule",
        "ConfigMap core-dashboard",
        "ConfigMap core-settings",
        "Deployment core-daemon",
    }
    assert not re.search(r"creat|delet|replac", done.text.partition("Resources:")[2])
    assert fresh.settled("core") != leader
    fresh.must_up("--expect-no-changes")
