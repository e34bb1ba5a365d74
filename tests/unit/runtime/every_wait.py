"""All commands and all public methods, from the command line's own tree and from the packages' `__all__`: the test that
bounds the waits of each, or why it waits for no peer.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

#: Methods of which a program asks by a statement.
_BY_STATEMENTS = {"__aenter__", "__aexit__", "__aiter__", "__enter__", "__exit__", "__iter__"}
#: What others made, and values have of it.
_OTHERS = ("builtins", "enum", "pydantic.main", "pika.spec", "pika.amqp_object", "typing")

BROKER = "broker/test_waits::test_"
PEERS = "unit/runtime/test_silent_peers::test_"
ENDS = f"{PEERS}a_program_that_waits_for_a_silent_peer_ends_when_it_is_asked_to"
COMMAND = f"{PEERS}a_command_ends_in_the_time_that_it_was_given"
BOUNDS = "jobs/test_bounds::test_a_server_that_stands_still_is_given_up_and_used_again_later"
RELAY = "relay/test_waits::test_"
BUS = "bus/on_peers/test_silent_peers::test_"

#: By command: the test of its waits.
COMMANDS = {
    "call": COMMAND,
    "daemon": ENDS,
    "dev": COMMAND,
    "lint": COMMAND,
    "status": COMMAND,
    **dict.fromkeys(("pool diff", "pool apply", "pool remove"), COMMAND),
    **dict.fromkeys(("poison list", "poison show", "poison replay", "poison bury"), COMMAND),
    **dict.fromkeys(("bus ping", "bus watch"), f"{BUS}a_command_on_the_bus_ends_in_the_time_that_it_was_given"),
    **dict.fromkeys(("jobs create", "jobs list", "jobs show", "jobs cancel", "jobs delete"), COMMAND),
    **dict.fromkeys(("jobs redo", "jobs migrate", "jobs restored", "jobs prepare-database"), COMMAND),
    "jobs serve": ENDS,
    **dict.fromkeys(("pipeline ingest", "pipeline tables", "pipeline recommend"), COMMAND),
    **dict.fromkeys(("pipeline report", "pipeline bill", "pipeline forget", "pipeline run"), COMMAND),
    "relay serve": ENDS,
}
#: Commands without a peer, and what they do.
COMMANDS_ALONE = {
    "new": "writes files",
    "replay": "reads a file",
    "jobs schemas": "imports a module",
    "relay check": "reads files",
    "relay redis": "reads a file",
    "relay token": "draws a random number",
}

#: Packages for programs of others. Those of the bus are in tests/bus/on_peers/test_waits.py: they need proton.
LIBRARIES = (
    *("osrdyne_amqp", "osrdyne_calls", "osrdyne_client", "osrdyne_jobs", "osrdyne_jobs.http", "osrdyne_relay"),
    *("osrdyne_relay.client", "osrdyne_relay.http", "osrdyne_relay.worker", "osrdyne_worker"),
)
CHANNEL = "unit/amqp/test_silent_broker::test_what_is_asked_of_a_silent_broker_ends_in_time"
CALLS = f"{BROKER}a_call_a_cast_and_the_end_of_a_client_take_their_time_and_no_more"
THREADS = f"{BROKER}the_same_holds_for_threads"
NODE = f"{RELAY}each_operation_of_a_node_whose_redis_is_lost_ends_in_time"
NODE_CALL = f"{PEERS}a_call_to_a_node_that_does_not_answer_ends_in_its_time"
#: By method: the test of its waits. Beginnings and ends by statements are those of `open` and `close`.
METHODS = {
    "osrdyne_amqp.Connection.open": f"{BROKER}a_client_that_cannot_connect_says_so_in_time",
    **dict.fromkeys(("osrdyne_amqp.Connection.channel", "osrdyne_amqp.Connection.close"), CHANNEL),
    **{
        f"osrdyne_amqp.Channel.{name}": CHANNEL
        for name in (
            *("bind_queue", "cancel", "close", "consume", "declare_queue", "delete_queue", "limit", "unbind_queue"),
        )
    },
    **{f"osrdyne_client.AsyncClient.{name}": CALLS for name in ("call", "cast", "close", "__aenter__", "__aexit__")},
    "osrdyne_client.AsyncClient.open": f"{BROKER}a_client_that_cannot_connect_says_so_in_time",
    **{f"osrdyne_client.Client.{name}": THREADS for name in ("open", "call", "cast", "close", "__enter__", "__exit__")},
    **{f"osrdyne_jobs.JobClient.{name}": BOUNDS for name in ("submit", "cancel", "get")},
    **{
        f"osrdyne_jobs.AsyncJobClient.{name}": "jobs/test_bounds::"
        "test_an_asyncio_program_gives_a_server_that_stands_still_up"
        for name in ("submit", "cancel", "get")
    },
    **{
        f"osrdyne_jobs.{name}": f"{PEERS}every_close_takes_a_second_at_most"
        for name in (
            *("JobClient.close", "JobClient.__enter__", "JobClient.__exit__"),
            *("AsyncJobClient.close", "AsyncJobClient.__aenter__", "AsyncJobClient.__aexit__"),
        )
    },
    "osrdyne_jobs.JobWorker.close": "jobs/test_standing_still::"
    "test_a_worker_closes_in_time_with_an_outcome_that_is_not_written",
    "osrdyne_jobs.JobWorker.run": ENDS,
    "osrdyne_jobs.Redo.run": "jobs/test_standing_still::test_redo_ends_in_time",
    "osrdyne_jobs.http.serve": "jobs/test_standing_still::"
    "test_the_administration_ends_in_time_with_a_request_under_way",
    **{
        f"osrdyne_relay.Relay.{name}": NODE
        for name in (
            *("__aenter__", "__aexit__", "apply_response", "ask_redis", "close"),
            *("dequeue", "polled", "queue_and_wait"),
        )
    },
    **{f"osrdyne_relay.Collected.{name}": NODE for name in ("apply", "fail", "give_back")},
    **{f"osrdyne_relay.Call.{name}": NODE for name in ("cancel", "ended", "response")},
    **{f"osrdyne_relay.client.AsyncRelayClient.{name}": NODE_CALL for name in ("call", "__aenter__", "__aexit__")},
    **{f"osrdyne_relay.client.RelayClient.{name}": NODE_CALL for name in ("call", "close", "__enter__", "__exit__")},
    "osrdyne_relay.http.serve": ENDS,
    "osrdyne_relay.worker.RelayWorker.run": ENDS,
    "osrdyne_relay.worker.RelayWorker.serve": ENDS,
    "osrdyne_worker.run": ENDS,
    "osrdyne_worker.serve": f"{BROKER}a_worker_with_work_in_hand_ends_within_its_grace",
}
#: By method, or by class or module: why it waits for no peer, or for as long as its caller does.
METHODS_ALONE = {
    **{
        f"osrdyne_amqp.Channel.{name}": "writes, and returns"
        for name in ("ack", "give_back", "publish", "publish_final", "reject", "send")
    },
    **{
        f"osrdyne_amqp.Channel.{name}": "for the connection, which calls it"
        for name in ("cancelled_by_broker", "finish", "forget_calls", "receive", "start")
    },
    "osrdyne_amqp.Channel.wait_closed": "waits for the end of the channel",
    "osrdyne_amqp.Connection.unblocked": "waits for the end of an alarm",
    "osrdyne_amqp.Connection.wait_closed": "waits for the end of the connection",
    "osrdyne_client.AsyncClient.start_cast": "returns a future",
    "osrdyne_client.AsyncClient.submit": "returns a future",
    "osrdyne_client.Client.start_cast": "returns a future",
    "osrdyne_client.Client.submit": "returns a future",
    "osrdyne_jobs.AsyncJobClient.cast": "writes, and returns",
    "osrdyne_jobs.AsyncJobClient.register": "has the caller's connection, and the bound of `submit`",
    "osrdyne_jobs.JobClient.cast": "writes, and returns",
    "osrdyne_jobs.JobClient.register": "has the caller's connection, and the bound of `submit`",
    "osrdyne_jobs.JobType": "a value",
    "osrdyne_jobs.JobWorker.handle": "waits for a job, for at most half of the pool's consumer timeout",
    "osrdyne_jobs.Redo.scan": "a step of `run`, which another process takes over",
    "osrdyne_jobs.RedoSettings": "a value",
    "osrdyne_jobs.Run.transaction": "has a transaction of the handler, whose lease ends",
    "osrdyne_jobs.async_engine_for": "connects to nothing yet",
    "osrdyne_jobs.engine_for": "connects to nothing yet",
    "osrdyne_jobs.engine_from_environment": "connects to nothing yet",
    "osrdyne_jobs.http.create_app": "connects to nothing yet",
    "osrdyne_jobs.migrate": "a change of tables may take long; the command bounds its connection",
    "osrdyne_relay.Call.close": "asks, and returns",
    "osrdyne_relay.Call.look": "for the node, which calls it",
    "osrdyne_relay.Call.receive": "for the node, which calls it",
    "osrdyne_relay.Collected.drop": "asks, and returns",
    "osrdyne_relay.Collected.look": "for the node, which calls it",
    "osrdyne_relay.Collected.wait_abandoned": "waits for the end of the request",
    "osrdyne_relay.Collected.waits_again": "asks, and returns",
    "osrdyne_relay.DataStreams": "what a store implements; ours bound each read by `transfer_timeout`",
    "osrdyne_relay.RedisSettings": "a value",
    **{
        f"osrdyne_relay.Relay.{name}": "asks, and returns"
        for name in ("forget", "forget_polled", "put_back", "start", "wake", "watch_polled")
    },
    "osrdyne_relay.RelaySettings": "a value",
    "osrdyne_relay.Response": "removes the streams of a response, which a store bounds",
    "osrdyne_relay.S3Settings": "a value",
    "osrdyne_relay.ServeSettings": "a value",
    "osrdyne_relay.SharedDirectory": "reads and writes files",
    "osrdyne_relay.StoredStream": "reads what a store has, which bounds each read",
    "osrdyne_relay.StreamSettings": "a value",
    "osrdyne_relay.Timings": "a value",
    "osrdyne_relay.client.BlockingResponse": "removes the streams of a response, which a store bounds",
    "osrdyne_relay.client.BlockingStream": "reads what a node has, which bounds each read",
    "osrdyne_relay.worker.AsyncRelayRequest": "sends as fast as the node takes it, within the request's time",
    "osrdyne_relay.worker.RelayRequest": "sends as fast as the node takes it, within the request's time",
    "osrdyne_worker.WorkerEnvironment": "a value",
    "osrdyne_worker.environment": "reads variables",
}


def public(*modules: str) -> set[str]:
    """Return the public functions of these modules, and the public methods of their classes."""
    return {name for module in modules for name in _public(module)}


def _public(module: str) -> Iterator[str]:
    found = importlib.import_module(module)
    for name in found.__all__:
        thing = getattr(found, name)
        if not inspect.isclass(thing):
            if inspect.isroutine(thing):
                yield f"{module}.{name}"
        elif not issubclass(thing, BaseException):
            for method in dir(thing):
                if (not method.startswith("_") or method in _BY_STATEMENTS) and _is_ours(thing, method):
                    yield f"{module}.{name}.{method}"


def _is_ours(thing: type, method: str) -> bool:
    home = next(base for base in thing.__mro__ if method in base.__dict__)
    return callable(getattr(thing, method)) and not home.__module__.startswith(_OTHERS)
