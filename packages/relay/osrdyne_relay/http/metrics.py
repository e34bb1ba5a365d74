"""The figures of a node for Prometheus. No label holds what a client chose."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class NodeMetrics:
    """A registry of its own."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.calls = Counter(
            "osrdyne_relay_calls", "Calls that came over HTTP, by what they came to.", ["outcome"], registry=own
        )
        self.requests = Counter(
            "osrdyne_relay_requests", "Requests that workers polled here, by outcome.", ["outcome"], registry=own
        )
        self.refused = Counter(
            "osrdyne_relay_refused",
            "HTTP requests that were answered by an error, by its code.",
            ["code"],
            registry=own,
        )
        self.calls_open = Gauge("osrdyne_relay_calls_open", "Calls under way.", registry=own)
        self.in_hand = Gauge("osrdyne_relay_requests_in_hand", "Requests that workers have.", registry=own)
        self.streams = Gauge("osrdyne_relay_streams", "Data streams that clients send or read.", registry=own)
        self.polls = Gauge("osrdyne_relay_polls", "Polls that wait, with those of WebSockets.", registry=own)
        self.sockets = Gauge("osrdyne_relay_sockets", "Workers' WebSockets.", registry=own)
        self.endpoints = Gauge("osrdyne_relay_endpoints", "Endpoints that this node listens to.", registry=own)
        self.connections = Gauge("osrdyne_relay_connections", "Connections over HTTP.", registry=own)
        self.redis_up = Gauge("osrdyne_relay_redis_up", "Whether Redis answered last time, 0 or 1.", registry=own)
        self.redis_outages = Counter("osrdyne_relay_redis_outages", "Outages of Redis.", registry=own)
