"""The figures of a bus for Prometheus. Needs the extra `metrics`. No label holds what a peer or a caller chose."""

from __future__ import annotations

from collections.abc import Iterable

from osrdyne_bus.aio import AsyncBus
from osrdyne_runtime.console.imports import extra

with extra("osrdyne-bus[metrics]"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector


class BusMetrics(Collector):
    """Reads a bus whenever it is asked. `prometheus_client.REGISTRY.register(BusMetrics(bus))` exports it."""

    def __init__(self, *buses: AsyncBus) -> None:
        """Read these buses, in any thread; that of a `threads.Bus` is its `asynchronous`.

        Their names are a label. Raises ValueError where two have the same.
        """
        names = [bus.name for bus in buses]
        if len(set(names)) < len(names):
            raise ValueError(f"two buses have one name ({', '.join(sorted(names))}): give each a `name` of its own")
        self._buses = buses

    def collect(self) -> Iterable[Metric]:
        """Return all figures."""
        gauges = {
            "connected": "Whether the bus has a connection, 0 or 1.",
            "senders": "Sender links that are attached.",
            "calls": "Calls that wait for their reply.",
            "in_hand": "Messages that came and are not acknowledged.",
        }
        counters = {
            "connections": "Connections that were opened.",
            "received": "Messages that came, replies among them.",
            "stalls": "How often a peer had used up the credit of a subscription.",
        }
        made: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, text in gauges.items():
            made[name] = GaugeMetricFamily(f"osrdyne_bus_{name}", text, labels=["bus"])
        for name, text in counters.items():
            made[name] = CounterMetricFamily(f"osrdyne_bus_{name}", text, labels=["bus"])
        sent = CounterMetricFamily(
            "osrdyne_bus_sent",
            "Messages that were sent, by kind (call, message, reply) and by outcome: accepted, or an error.",
            labels=["bus", "kind", "outcome"],
        )
        for bus in self._buses:
            values = {
                "connected": bus.is_connected,
                "senders": bus.senders,
                "calls": bus.calls,
                "in_hand": bus.in_hand,
                "connections": bus.connections,
                "received": bus.received,
                "stalls": bus.stalls,
            }
            for name, value in values.items():
                made[name].add_metric([bus.name], value)
            for (kind, outcome), number in sorted(bus.counts.sent.copy().items()):
                sent.add_metric([bus.name, kind, outcome], number)
        return [*made.values(), sent]
