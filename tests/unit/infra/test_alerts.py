"""Alerts of Prometheus, beside the metrics that the daemon shows as it starts."""

from __future__ import annotations

import re

from prometheus_client import generate_latest

from osrdyne.metrics import Metrics
from osrdyne_infra.monitoring import alerts


def test_a_counter_with_an_alert_is_there_before_it_counts() -> None:
    """Prometheus sees no increase in the first value of a series."""
    asked = "\n".join(rule["expr"] for rule in alerts.rules("core", "rail"))
    shown = generate_latest(Metrics().registry).decode()

    found = re.findall(r'increase\((\w+)\{namespace="rail", job="core-daemon"(?:, (\w+)(=|!=|=~)"([^"]*)")?\}', asked)

    assert len(found) >= 5
    for name, label, how, value in found:
        there = re.findall(rf'^{name}(?:{{{label}="(.*?)"}})? 0.0$', shown, re.MULTILINE)
        wanted = value.split("|")
        assert there, name
        if label and how != "!=":
            assert set(wanted) <= set(there), name
        elif label:
            assert set(there) - set(wanted), name


def test_every_reason_for_which_a_key_is_not_woken_is_counted_from_the_start() -> None:
    text = generate_latest(Metrics().registry).decode()
    shown = set(re.findall(r'osrdyne_wakes_refused_total{reason="(\w+)"} 0.0', text))

    assert shown == {"keys", "budget", "groups"}
