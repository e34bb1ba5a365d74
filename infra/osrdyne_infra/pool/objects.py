"""The broker objects of one pool: policies, exchanges, static queues and bindings, as the topology model has them.

In this order: policies before what they are for, and the request exchange last, so that no request can arrive before
there is a way for orphans.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pulumi
import pulumi_rabbitmq as rabbitmq

from osrdyne_infra.ordering import child
from osrdyne_pool.topology import Binding, Exchange, Policy, Queue, Topology

if TYPE_CHECKING:
    from osrdyne_infra.components.broker import Broker


class PoolObjects:
    """Everything of one pool in the vhost that stays the same while it runs, as parts of its component.

    `own` says how each is called in the program.
    """

    def __init__(
        self, declared: Topology, broker: Broker, parent: pulumi.ComponentResource, own: Callable[[str], str]
    ) -> None:
        self._vhost, self._replaced, self._parent, self._own = broker, broker.replaced(declared), parent, own
        self.policies = [self._policy(policy) for policy in declared.policies]
        requests = [exchange for exchange in declared.exchanges if exchange.type == "direct"]
        self.exchanges = {
            exchange.name: self._exchange(exchange, self.policies)
            for exchange in declared.exchanges
            if exchange not in requests
        }
        self.queues = {queue.name: self._queue(queue) for queue in declared.queues}
        self.bindings = [self._binding(binding) for binding in declared.bindings]
        for request_exchange in requests:
            self.exchanges[request_exchange.name] = self._exchange(request_exchange, self.bindings)
        self.made: list[pulumi.Resource] = [
            *self.policies,
            *self.exchanges.values(),
            *self.queues.values(),
            *self.bindings,
        ]

    def _after(self, name: str, first: list[pulumi.Resource]) -> pulumi.ResourceOptions:
        return child(self._parent, [self._vhost.admin, *first], replaced=name in self._replaced)

    def _policy(self, one: Policy) -> pulumi.Resource:
        return rabbitmq.Policy(
            self._own(one.name),
            name=one.name,
            vhost=self._vhost.vhost,
            policy=rabbitmq.PolicyPolicyArgs(
                pattern=one.pattern,
                apply_to=one.apply_to,
                priority=one.priority,
                # The provider keeps texts, and gives the broker integers where they look like ones.
                definition={name: str(value) for name, value in one.definition.items()},
            ),
            opts=self._after(one.name, []),
        )

    def _exchange(self, one: Exchange, first: list[pulumi.Resource]) -> rabbitmq.Exchange:
        return rabbitmq.Exchange(
            self._own(one.name),
            name=one.name,
            vhost=self._vhost.vhost,
            settings=rabbitmq.ExchangeSettingsArgs(
                type=one.type, durable=True, arguments={name: str(value) for name, value in one.arguments.items()}
            ),
            opts=self._after(one.name, first),
        )

    def _queue(self, one: Queue) -> rabbitmq.Queue:
        # As JSON, in which integers stay integers: a broker does not take "-1" for a limit.
        arguments = json.dumps({"x-queue-type": one.type, **one.arguments}, sort_keys=True)
        return rabbitmq.Queue(
            self._own(one.name),
            name=one.name,
            vhost=self._vhost.vhost,
            settings=rabbitmq.QueueSettingsArgs(durable=True, arguments_json=arguments),
            opts=self._after(one.name, self.policies),
        )

    def _binding(self, one: Binding) -> pulumi.Resource:
        return rabbitmq.Binding(
            f"{self._own(one.exchange)}-to-{one.queue}",
            source=self.exchanges[one.exchange].name,
            destination=self.queues[one.queue].name,
            destination_type=one.to,
            routing_key=one.routing_key,
            vhost=self._vhost.vhost,
            opts=child(self._parent),
        )
