"""Makes a broker lose a quorum queue, as RabbitMQ 4.0 to 4.2 do when they are killed right after its declaration."""

from __future__ import annotations

import shlex

from osrdyne_pool.broker import quorum
from testbed.broker import DEMO_VERSION, STATISTICS_INTERVAL_MS, Broker
from testbed.management import Management


def lose(broker: Broker, vhost: str, *queues: str) -> None:
    """Have these queues be lost with what is ready in them. On RabbitMQ 4.3 such a queue is empty after a kill.

    On 4.0, what is left of it is its record, without what Raft knew of it: this takes that away. It must not do so on
    4.3: there the new Raft server finds the log of the old one under its name, and may refuse to start.
    """
    for queue in queues:
        if broker.version != DEMO_VERSION:
            broker.rabbitmqctl("purge_queue", "--vhost", vhost, queue)
            continue
        broker.rabbitmqctl(
            "eval",
            f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)), '
            "{Name, _} = amqqueue:get_pid(Q), "
            "ra:force_delete_server(quorum_queues, {Name, node()}), "
            f'rabbit_quorum_queue:recover(<<"{vhost}">>, [Q]).',
        )
        assert is_lost(broker.management, vhost, queue), f"{queue} is not lost"


def lose_as_by_a_kill(broker: Broker, vhost: str, queue: str) -> None:
    """Have a queue be lost, its counts be gone, and the connections to its virtual host: some four seconds."""
    if broker.version == DEMO_VERSION:
        lose(broker, vhost, queue)
        forget_counts(broker, vhost, queue)
    broker.rabbitmqctl("close_all_connections", "--vhost", vhost, "as a kill would")
    if broker.version != DEMO_VERSION:
        lose(broker, vhost, queue)  # now that no consumer holds any of it


def lose_stream(broker: Broker, vhost: str, stream: str) -> None:
    """Have a stream be listed as RabbitMQ 4.0 lists one that it lost: not at all, while its bindings are there."""
    resource = f'rabbit_misc:r(<<"{vhost}">>, queue, <<"{stream}">>)'
    broker.rabbitmqctl("eval", f"mnesia:dirty_delete(rabbit_queue, {resource}).")


def forget_counts(broker: Broker, vhost: str, queue: str) -> None:
    """Have the management API list a lost queue without counts, as it does after a kill: it keeps those of before."""
    broker.rabbitmqctl(
        "eval",
        f'R = rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>), '
        "ets:delete(queue_metrics, R), ets:delete(queue_coarse_metrics, R), "
        # Its collector writes once more what it has read before.
        f"timer:sleep({4 * STATISTICS_INTERVAL_MS}), rabbit_event:notify(queue_deleted, [{{name, R}}]).",
    )


def is_lost(api: Management, vhost: str, queue: str) -> bool:
    return quorum.never_led(quorum.read(api.get("queues", "quorum", vhost, queue, "status")))


def mend(broker: Broker, text: str) -> None:
    """Run the command that a text of ours names: the first one between backticks."""
    program, *words = shlex.split(text.split("`")[1])
    assert program == "rabbitmqctl"
    broker.rabbitmqctl(*words)
