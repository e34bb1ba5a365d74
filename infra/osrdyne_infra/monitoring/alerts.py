"""What is worth waking a person for, as rules of Prometheus; docs/howto/operations.md says what to do. Pure."""

from __future__ import annotations

from typing import Any

from osrdyne_protocol.names import PoolNames


def selector(pool: str, namespace: str, *more: str) -> str:
    """Return what chooses the series of a pool's daemons."""
    return "{" + ", ".join([f'namespace="{namespace}"', f'job="{pool}-daemon"', *more]) + "}"


def rules(pool: str, namespace: str) -> list[dict[str, Any]]:
    """Return the alerts of a pool."""
    names = PoolNames(pool)

    def of(metric: str, *more: str) -> str:
        return f"{metric}{selector(pool, namespace, *more)}"

    def depth(queue: str) -> str:
        return of("osrdyne_queue_messages", f'queue="{queue}"')

    def waiting(queue: str) -> str:
        return f"max({depth(queue)}) > 0"

    leaders, failed = of("osrdyne_leader"), of("osrdyne_keys", 'state="failed"')
    full = of("osrdyne_poison_total", 'outcome=~"waiting|refused"')
    dropped = of("osrdyne_poison_total", 'outcome="dropped"')
    no_groups = of("osrdyne_wakes_refused_total", 'reason="groups"')
    others = of("osrdyne_wakes_refused_total", 'reason!="groups"')
    ends = of("osrdyne_worker_exits_total", 'how!="stopped"')
    waits = f"sum by (le) (rate({of('osrdyne_queue_seconds_bucket')}[10m]))"
    return [
        _rule("NoLeader", f"(sum({leaders}) or vector(0)) != 1", "1m", "not exactly one daemon acts", pool),
        _rule("KeysFailed", f"max({failed}) > 0", "5m", "workers of a key cannot be started", pool),
        _rule(
            "WorkersEnd", f"sum(increase({ends}[15m])) > 10", "0m", "workers end by themselves again and again", pool
        ),
        _rule("TooFewWorkers", f"histogram_quantile(0.9, {waits}) > 5", "15m", "requests wait for a free worker", pool),
        _rule("OrphansWait", waiting(names.orphan_queue), "5m", "requests wait for their queue", pool),
        _rule("DeadLettersWait", waiting(names.dead_letter_queue), "5m", "error replies are not sent", pool),
        _rule("Poison", waiting(names.poison_queue), "1m", "requests failed again and again", pool),
        _rule("Unanswered", waiting(names.unanswered_queue), "1m", "requests without a caller were not served", pool),
        _rule("UnansweredDropped", f"sum(increase({dropped}[10m])) > 0", "0m", "such requests are dropped", pool),
        # Each copy is tried again after a minute, so a queue that drains is empty at times.
        _rule("InventoryStaysFull", waiting(names.waiting_queue), "15m", "copies find no room in the inventory", pool),
        _rule("NoRoomForKeys", f"sum(increase({no_groups}[10m])) > 0", "0m", "all worker groups are in use", pool),
        # A caller beyond its budget hears when to try again, and once in a while needs no person.
        _rule("WakesRefused", f"sum(increase({others}[10m])) > 0", "15m", "requests for new keys are refused", pool),
        _rule(
            "OtherConsumers",
            f"max({of('osrdyne_queues_with_other_consumers')}) > 0",
            "1m",
            "another program takes messages that are the daemon's",
            pool,
        ),
        _rule("Parked", waiting(names.parked_queue), "1m", "messages cannot be delivered to the daemon", pool),
        _rule("PoisonRefused", f"sum(increase({full}[10m])) > 0", "0m", "the poison inventory is full", pool),
        _rule(
            "TopologyDrifts", f"max({of('osrdyne_topology_findings')}) > 0", "5m", "the broker is not as declared", pool
        ),
        _rule("StaticQueueLost", f"max({of('osrdyne_static_queues_lost')}) > 0", "1m", "the broker lost a queue", pool),
        _rule(
            "SettingsRejected", f"max({of('osrdyne_settings_rejected')}) > 0", "1m", "changed settings are wrong", pool
        ),
        _rule("BrokerAlarm", f"max({of('osrdyne_broker_alarm')}) > 0", "1m", "the broker takes no messages", pool),
        _rule(
            "SessionsEnd",
            f"sum(increase({of('osrdyne_sessions_ended_total')}[15m])) > 5",
            "0m",
            "daemons lose the broker again and again",
            pool,
        ),
    ]


def _rule(name: str, expression: str, lasting: str, summary: str, pool: str) -> dict[str, Any]:
    return {
        "alert": f"Osrdyne{name}",
        "expr": expression,
        "for": lasting,
        "labels": {"severity": "warning", "pool": pool},
        "annotations": {"summary": f"pool {pool}: {summary}"},
    }
