"""The objects of the vhost as the broker has them now, as a Topology: what `preflight` judges. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from osrdyne_infra.broker import lost_queues
from osrdyne_infra.broker.management import Management
from osrdyne_pool.broker import lost, management_json
from osrdyne_pool.topology import Topology


@dataclass(frozen=True)
class Live:
    """What is there before anything is done; of a vhost that is not there yet, nothing."""

    topology: Topology = field(default_factory=lambda: Topology((), (), (), ()))
    #: Queues that hold messages, with their number.
    messages: Mapping[str, int] = field(default_factory=dict)
    #: Static quorum queues of the declared pools that the broker lost.
    lost: frozenset[str] = frozenset()


def read(broker: Management, vhost: str, declared: Iterable[Topology]) -> Live:
    """Look at the vhost, and whether it has lost queues of the declared pools. Raises BrokerError."""
    broker.check()
    users = {"users": broker.default_login()}
    if not broker.vhost_exists(vhost):
        return Live(management_json.read(users))
    listed = {
        kind: broker.get(kind, vhost) for kind in ("exchanges", "queues", "bindings", "policies", "operator-policies")
    }
    found = management_json.read(listed | users)
    there = {queue.name for queue in found.queues if queue.type == "quorum"}
    asked = [name for topology in declared for name in lost.static_quorum_queues(topology) if name in there]
    return Live(found, broker.messages(vhost), lost_queues.find(broker, vhost, asked))
