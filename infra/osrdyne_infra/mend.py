"""A resource that stands for no object: it declares queues again that the broker lost when it was killed.

Where `osrdyne:mend_lost_queues` allows it, it deletes static queues that are lost, and declares them again with their
bindings, as the state of the stack has them. Elsewhere `preflight` refuses before it comes to that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from osrdyne_infra.broker.lost_queues import find
from osrdyne_infra.broker.management import Management
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import BrokerUnusable
from osrdyne_infra.guard import Provider, access, kept, management, plainly
from osrdyne_infra.package.resource import OwnResource
from osrdyne_pool.topology import Topology


class _Mends(Provider):
    """Mends when it is made and when it is changed, and has then nothing more to mend."""

    def apply(self, props: dict[str, Any]) -> dict[str, Any]:
        broker, vhost, declared = management(props), props["vhost"], json.loads(props["declared"])
        with plainly():
            # Once more, right before: one may have been mended since the program looked.
            for name in sorted(find(broker, vhost, props["lost"]) if props["lost"] else ()):
                _declare_again(broker, vhost, name, declared[name])
        return {**kept(props), "lost": []}


def _declare_again(broker: Management, vhost: str, name: str, declared: Mapping[str, Any]) -> None:
    broker.delete_queue(vhost, name)
    try:
        broker.declare_queue(vhost, name, declared["arguments"])
        for exchange, routing_key in declared["bindings"]:
            broker.bind(vhost, exchange, name, routing_key)
    except BrokerUnusable as error:
        raise BrokerUnusable(
            f"queue {name} of vhost {vhost} was deleted, because the broker had lost it, and could not be declared "
            f"again: {error}. Run `pulumi up --refresh`, which declares what is missing"
        ) from None


def as_declared(declared: Topology) -> dict[str, Any]:
    """Return arguments and bindings of each static quorum queue, as they are declared."""
    return {
        queue.name: {
            "arguments": {"x-queue-type": queue.type, **queue.arguments},
            "bindings": [[each.exchange, each.routing_key] for each in declared.bindings if each.queue == queue.name],
        }
        for queue in declared.queues
        if queue.type == "quorum"
    }


class Mend(OwnResource, kind="Mend", provider=_Mends):
    """Ensures that the static queues of a pool which the broker lost are declared again."""

    def __init__(
        self,
        name: str,
        settings: StackSettings,
        declared: Topology,
        lost: pulumi.Input[Sequence[str]],
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            **access(settings),
            # As JSON, in which integers stay integers.
            "declared": json.dumps(as_declared(declared), sort_keys=True),
            "lost": lost,
        }
        super().__init__(name, inputs, opts)
