"""The world of a run: broker, engine, clients and daemons of a scenario, its faults, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from osrdyne.settings.daemon import DaemonSettings
from osrdyne_amqp import Connection
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Queue, Users, topology
from osrdyne_protocol.names import PoolNames
from simulation import faults, virtual_time
from simulation.clients import Client
from simulation.daemons import DaemonProcess
from simulation.engine import Engine
from simulation.library_workers import LibraryWorker
from simulation.model import Event, History, ModelBroker, ModelManagement
from simulation.scenario import TAKEN, KeyPlan, Kind, RequestPlan, Scenario
from simulation.workers import Worker

NAMES = PoolNames("core")
#: Where copies of requests are kept that could not be served.
INVENTORY = (NAMES.poison_queue, NAMES.unanswered_queue, NAMES.waiting_queue)
USERS = Users.of("core")
#: A queue of another pool in the same virtual host: no program of the run may touch it.
FOREIGN_QUEUE = "corex-req-42"

#: Seconds between two looks whether everything has come to its end.
_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left of a run, for the checker."""

    scenario: Scenario
    history: History
    #: Virtual seconds that the run took, and whether it came to rest before its settling time was over.
    seconds: float
    at_rest: bool
    #: Requests by name in each queue at the end, those of the pool only.
    left: dict[str, list[str]]
    #: Every queue at the end.
    queues: list[str]
    #: Groups that still run.
    groups: list[str]
    complaints: list[str]


#: Of the daemon: so low that a few keys reach them.
LIMITS = {
    "start_grace": 15.0,
    "starts_in_flight": 2,
    "held_orphans_per_key": 4,
    "orphan_prefetch": 16,
    "dead_letter_prefetch": 16,
}
#: Seconds until a client that has woken as many keys as it may can wake one more.
NEW_KEY_INTERVAL_SECONDS = 60.0


def daemon_settings(pool: PoolSettings, limits: Mapping[str, Any] = LIMITS, **broker: Any) -> DaemonSettings:
    """Return the settings of a simulated daemon: intervals are those of a real one, delays are shorter."""
    values: dict[str, Any] = {
        "broker": {
            "amqp_uri": "amqp://core-daemon:secret@model/v",
            "management_uri": "http://core-daemon:secret@model:15672",
            **broker,
        },
        "driver": {"kind": "noop"},
        "limits": dict(limits),
        "intervals": {"engine_listing": 15.0, "recheck": 10.0},
    }
    return DaemonSettings(pool=pool, **values)


class World:
    """Everything that takes part in a run. Made within its loop."""

    def __init__(self, scenario: Scenario, history: History) -> None:
        self.scenario = scenario
        self.loop = asyncio.get_running_loop()
        self.names = NAMES
        self.users = USERS
        self.rng = random.Random(f"world {scenario.seed}")
        self.broker = ModelBroker(
            random.Random(f"broker {scenario.seed}"),
            version="4.0" if scenario.version == "4.0" else "4.3",
            history=history,
        )
        self.history = history
        self.broker.on_operation = self._on_operation
        self.topology = topology(scenario.pool, USERS)
        taken = [NAMES.request_queue(key.key) for key in scenario.keys if key.start == TAKEN]
        foreign = (Queue(FOREIGN_QUEUE), *(Queue(name, "classic") for name in taken))
        self.broker.apply(replace(self.topology, queues=(*self.topology.queues, *foreign)))
        self.uris = {
            role: f"amqp://{getattr(USERS, role)}:secret@model/v" for role in ("client", "worker", "daemon", "monitor")
        }
        budget = {"new_keys": scenario.new_keys, "new_key_interval": NEW_KEY_INTERVAL_SECONDS}
        self.daemon_settings = daemon_settings(scenario.pool, LIMITS | budget)
        self.engine = Engine(self)
        self.clients = [Client(self, number) for number in range(scenario.clients)]
        self.daemons = [DaemonProcess(self, "a")]
        self._plans = {key.key: key for key in scenario.keys}
        #: Policies that a fault has removed, and what is wrong with the management API.
        self.removed: set[str] = set()
        self._management_faults: set[str] = set()
        self._managements: list[ModelManagement] = []

    def note(self, kind: str, actor: str, place: str = "", detail: Any = None) -> None:
        """Add to the history what is not the broker's."""
        self.history.events.append(Event(self.loop.time(), kind, actor, place, None, detail))

    def management(self) -> ModelManagement:
        """Return the management API for a daemon that starts now."""
        made = self.broker.management()
        self._managements.append(made)
        self._tell_managements()
        return made

    def management_fails(self, how: str, fails: bool) -> None:
        """Begin or end a fault of the management API: `away`, `hangs`, `uncounted`."""
        if fails:
            self._management_faults.add(how)
        else:
            self._management_faults.discard(how)
        self._tell_managements()

    def _tell_managements(self) -> None:
        for management in self._managements:
            management.away = "away" in self._management_faults
            management.hangs = "hangs" in self._management_faults
            management.uncounted = "uncounted" in self._management_faults

    async def connect(self, uri: str, *, name: str, heartbeat: float = 5.0, timeout: float = 10.0) -> Connection:
        """Connect a program that opens its connections itself."""
        return await self.broker.open(uri, name=name, heartbeat=heartbeat, timeout=timeout)

    def key_plan(self, key: str) -> KeyPlan:
        return self._plans.get(key) or KeyPlan(key)

    def request_plan(self, name: str) -> RequestPlan | None:
        return self.scenario.by_name.get(name)

    def worker(self, key: str, name: str) -> Worker:
        """Return a worker of a key, for the engine to run."""
        if self.scenario.kind is Kind.SUSPECTS:
            return LibraryWorker(self, key, name)
        return Worker(self, key, name)

    def load_of(self, key: str) -> tuple[int, int, bool, tuple[float, float]] | None:
        """Return ready and unacknowledged messages of a key's queue, whether it is bound, and from when until when it
        last had no consumer; None without queue, and where the broker has lost it.
        """
        queue = self.broker.queues.get(NAMES.request_queue(key))
        if queue is None or queue.lost:
            return None
        unserved = queue.unserved_before if queue.consumers else (queue.unserved_since, self.loop.time())
        return len(queue.ready), len(queue.unacked), bool(self.broker.routing.bindings_of(queue.name)), unserved

    def _on_operation(self, connection: str, what: str) -> None:
        for daemon in self.daemons:
            if daemon.armed and daemon.owns(connection):
                daemon.on_operation()

    def killed(self, daemon: DaemonProcess) -> None:
        """Kill a daemon; the machine's service manager starts it again a while later."""
        daemon.kill()
        self.loop.call_later(self.rng.choice((0.05, 1.0, 6.0)), daemon.start, context=Context())

    def start(self) -> None:
        spawn, scenario = self.loop.create_task, self.scenario
        for client in self.clients:
            spawn(client.run(), name=client.name, context=Context())
        self.daemons[0].start()
        if scenario.standby_at is not None:
            self.daemons.append(DaemonProcess(self, "b"))
            self.loop.call_at(scenario.standby_at, self.daemons[1].start, context=Context())
        for plan in scenario.requests:
            self.loop.call_at(plan.at, self.clients[plan.client].send, plan, context=Context())
        for fault in scenario.faults:
            faults.schedule(self, fault)

    def at_rest(self) -> bool:
        """Say whether nothing is left to do: no request anywhere, no queue, no group."""
        ours = (name for name, queue in self.broker.queues.items() if queue.kind == "quorum")
        if self.engine.running or any(name.startswith(NAMES.request_queue_prefix) for name in ours):
            return False
        faults = {fault.what for fault in self.scenario.faults}
        # What waits for a lost queue is nowhere at the broker; it is sent again when that queue is gone.
        resent = "queues lost" in faults and "confirms never" not in faults
        if resent and any(client.waits_for_confirms for client in self.clients):
            return False
        return not any(self.broker.messages(name) for name in (NAMES.orphan_queue, NAMES.dead_letter_queue))

    async def run(self) -> Outcome:
        self.start()
        await asyncio.sleep(self.scenario.end + 1.0)
        for daemon in self.daemons:
            daemon.disarm()
        last = self.scenario.end + self.scenario.settle
        while not (at_rest := self.at_rest()) and self.loop.time() < last:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(_LOOK_SECONDS)
        # Replies that are under way still arrive.
        await asyncio.sleep(1.0)
        left = {
            name: [message.body.decode(errors="replace") for message in self.broker.messages(name)]
            for name in self.broker.queue_names()
            if NAMES.owns_queue(name) and name not in (NAMES.activity_queue, NAMES.events_stream)
        }
        assert isinstance(self.loop, virtual_time.VirtualLoop)
        return Outcome(
            self.scenario,
            self.history,
            self.loop.time(),
            at_rest,
            left,
            self.broker.queue_names(),
            sorted(self.engine.running),
            list(self.loop.complaints),
        )


#: Loggers of what runs in the simulation.
_LOGGERS = ("osrdyne", "osrdyne_amqp", "osrdyne_client", "asyncio")


class _Errors(logging.Handler):
    """Notes what the daemon logs as an error: it says that a message made one of its tasks fail."""

    def __init__(self, note: Callable[..., None]) -> None:
        super().__init__(logging.ERROR)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        # A session that ends unexpectedly is noted with its reason already.
        if "beginning again" not in record.getMessage():
            cause = record.exc_info[1] if record.exc_info else None
            self._note("error logged", record.name, "", f"{record.getMessage()}: {cause!r}")


@contextlib.contextmanager
def only_errors_noted(note: Callable[..., None]) -> Iterator[None]:
    """Note everything that the daemon logs as an error, and log nothing else."""
    handler, daemons = _Errors(note), logging.getLogger("osrdyne")
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    daemons.addHandler(handler)
    daemons.propagate = False
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        daemons.propagate = True
        daemons.removeHandler(handler)


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario from its beginning to its end."""

    async def program() -> Outcome:
        world = World(scenario, History())
        with only_errors_noted(world.note), mock.patch.object(Connection, "open", world.connect):
            return await world.run()

    return virtual_time.run(scenario.seed, program)
