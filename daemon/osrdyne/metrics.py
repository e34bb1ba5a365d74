"""Metrics of the daemon in Prometheus format. Labels never hold keys, addresses or values that a client chose."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from osrdyne.drivers.base import How
from osrdyne_protocol import statuses

#: Bounds of the histograms, in seconds.
_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STARTS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
#: Outcome of a request that ended in a way which is not in the protocol's table.
_OTHER = "other"


class Metrics:
    """One registry a daemon, so that tests and several daemons in one process do not share counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of = self.registry
        self.leader = Gauge("osrdyne_leader", "1 while this daemon holds the pool's lock.", registry=of)
        self.orphans = Counter("osrdyne_orphans", "Orphans by what became of them.", ["outcome"], registry=of)
        self.held = Gauge("osrdyne_held_orphans", "Orphans held until their queue is ready.", registry=of)
        self.forward_seconds = Histogram(
            "osrdyne_forward_seconds",
            "Seconds from an orphan's arrival at the daemon to its confirmed forward.",
            buckets=_SHORT,
            registry=of,
        )
        self.cold_start_seconds = Histogram(
            "osrdyne_cold_start_seconds",
            "Seconds from the request that woke a key to the start of a worker, failed starts included.",
            buckets=_STARTS,
            registry=of,
        )
        self.queue_seconds = Histogram(
            "osrdyne_queue_seconds",
            "Seconds that requests with a caller waited in their queue for a worker that was there, as workers report.",
            buckets=_SHORT,
            registry=of,
        )
        self.requests = Counter("osrdyne_requests", "Requests that ended, by how.", ["outcome"], registry=of)
        _from_zero(self.requests, *statuses.STATUSES, _OTHER)
        self.worker_exits = Counter("osrdyne_worker_exits", "Ends of workers, and failed starts.", ["how"], registry=of)
        _from_zero(self.worker_exits, *(how.value for how in How))
        self.wakes_refused = Counter(
            "osrdyne_wakes_refused",
            "Requests whose key was not woken: outside of pool.keys, budget of its user spent, all groups in use.",
            ["reason"],
            registry=of,
        )
        _from_zero(self.wakes_refused, "keys", "budget", "groups")
        self.dead_letters = Counter("osrdyne_dead_letters", "Dead letters by reason.", ["reason"], registry=of)
        self.replies = Counter(
            "osrdyne_error_replies",
            "Error replies by status and outcome.",
            ["status", "outcome"],
            registry=of,
        )
        self.poison = Counter("osrdyne_poison", "Copies for the poison inventory by outcome.", ["outcome"], registry=of)
        _from_zero(self.poison, "kept", "waiting", "refused", "dropped")
        self.activity = Counter("osrdyne_activity_events", "Activity events by type.", ["event"], registry=of)
        self.keys = Gauge("osrdyne_keys", "Keys by state, as `osrdyne status` shows it.", ["state"], registry=of)
        self.alarm = Gauge("osrdyne_broker_alarm", "1 while the broker takes no publishes.", registry=of)
        self.depths = Gauge(
            "osrdyne_queue_messages",
            "Messages that wait for the daemon or a person, by queue; absent while not known.",
            ["queue"],
            registry=of,
        )
        self.queues_lost = Counter(
            "osrdyne_queues_lost_by_broker",
            "Request queues that the broker had lost, and that were created again.",
            registry=of,
        )
        self.messages_lost = Counter(
            "osrdyne_messages_lost_by_broker",
            "Messages that such queues held when they were last seen before, where that is known.",
            registry=of,
        )
        self.drift = Gauge(
            "osrdyne_topology_findings", "Findings of the last comparison with the topology.", registry=of
        )
        self.lost = Gauge(
            "osrdyne_static_queues_lost",
            "1 for each static queue that the broker lost; absent for the others.",
            ["queue"],
            registry=of,
        )
        self.shared = Gauge(
            "osrdyne_queues_with_other_consumers",
            "1 for the orphan or dead-letter queue where others consume it beside the daemon; absent otherwise.",
            ["queue"],
            registry=of,
        )
        self.sessions_ended = Counter(
            "osrdyne_sessions_ended", "Times that a session on the broker ended or could not begin.", registry=of
        )
        self.settings_rejected = Gauge(
            "osrdyne_settings_rejected", "1 while the settings on disk cannot be used.", registry=of
        )

    def ended(self, outcome: str | None) -> None:
        """Count a request that ended."""
        self.requests.labels(outcome if outcome in statuses.STATUSES else _OTHER).inc()


def _from_zero(counter: Counter, *labels: str) -> None:
    """Show a counter with each label from the start: Prometheus sees no increase in the first value of a series."""
    for label in labels:
        counter.labels(label)
