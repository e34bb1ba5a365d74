"""Metrics for Prometheus, read from the database when they are asked for. No label holds what a client chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from osrdyne_jobs import figures

Reading = Callable[[], AbstractContextManager[Connection]]


class _Jobs(Collector):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        with self._reading() as connection:
            states = figures.by_state(connection)
            lag = figures.redo_lag(connection)
            runs = figures.runs(connection)
            expired = figures.expired_leases(connection)
        jobs = GaugeMetricFamily("osrdyne_jobs", "Jobs by state, without the history.", labels=["state"])
        oldest = GaugeMetricFamily(
            "osrdyne_jobs_oldest_age_seconds",
            "Seconds since the registration of a state's oldest job; absent where the state has none.",
            labels=["state"],
        )
        for state in states:
            jobs.add_metric([state.state], state.jobs)
            if state.age is not None:
                oldest.add_metric([state.state], state.age)
        ended = GaugeMetricFamily(
            "osrdyne_jobs_runs", "Runs that ended within the last hour, by outcome.", labels=["outcome"]
        )
        for outcome, number in runs.items():
            ended.add_metric([outcome], number)
        return [
            jobs,
            oldest,
            GaugeMetricFamily(
                "osrdyne_jobs_redo_lag_seconds",
                "Seconds for which the most overdue job has waited for redo; 0 where none is overdue.",
                value=lag,
            ),
            ended,
            GaugeMetricFamily(
                "osrdyne_jobs_expired_leases",
                "Runs whose lease has ended and that neither redo nor another worker has taken over yet.",
                value=expired,
            ),
        ]


def registry(reading: Reading) -> CollectorRegistry:
    """Return a registry of its own, which reads over the connections that `reading` gives."""
    own = CollectorRegistry()
    own.register(_Jobs(reading))
    return own
