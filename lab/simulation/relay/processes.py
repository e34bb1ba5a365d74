"""What callers and workers do, and what happens to their processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from osrdyne_relay import Answer, Collected, Relay, RelayError
from osrdyne_relay.call import Call
from simulation.relay import world as runs
from simulation.relay.connection import Connection, Process
from simulation.relay.scenario import ENDPOINTS, LOAD_SECONDS, CallPlan, Trouble

if TYPE_CHECKING:
    from simulation.relay.world import World

#: Workers of each endpoint at each node.
WORKERS = 2
#: Of a poll to break off.
_BREAKS = 0.3
#: The first number of calls that begin after all troubles.
_PROBES = 1000


def start_server(world: World, name: str) -> None:
    """Start a node that workers poll."""
    process = _node(world, name)

    async def live() -> None:
        async with process.relay:
            await asyncio.gather(*(_work(world, process, endpoint) for endpoint in ENDPOINTS for _ in range(WORKERS)))

    _live(world, process, process.spawn(live()))


def start_caller(world: World, name: str, calls: Sequence[CallPlan]) -> None:
    """Start a node that makes those of the calls that are its own and still to come."""
    process = _node(world, name)
    number = int(name.split()[1])

    async def live() -> None:
        async with process.relay:
            mine = [call for call in calls if call.caller == number and call.at >= world.now()]
            await asyncio.gather(*(_make(world, process, plan) for plan in mine))
            await asyncio.Event().wait()

    _live(world, process, process.spawn(live()))


def _node(world: World, name: str) -> Process:
    process = Process(name, world)
    process.relay = Relay(runs.SETTINGS, redis=Connection(world, process))
    world.alive[name] = process
    world.note(f"{name} starts")
    return process


def _live(world: World, process: Process, life: asyncio.Task[None]) -> None:
    def end() -> None:
        node = process.relay._node
        for task in (life, *node.tasks, *node.chores):
            task.cancel()
        if world.alive.get(process.name) is process:
            del world.alive[process.name]

    process.at_end.append(end)


async def _work(world: World, process: Process, endpoint: str) -> None:
    while True:
        try:
            request = await _dequeue(world, process, endpoint)
        except RelayError as error:
            world.note(f"{process.name}: dequeue raises {type(error).__name__}")
            continue
        if request is not None:
            await _serve(world, process.name, process.relay, request)


async def _dequeue(world: World, process: Process, endpoint: str) -> Collected | None:
    """Poll as a worker does: now and then its connection to the node breaks meanwhile."""
    polling = asyncio.create_task(process.relay.dequeue(endpoint))
    try:
        if world.chance.random() < _BREAKS and world.now() < LOAD_SECONDS:
            # Just as it may get a request, or at any time.
            claims = asyncio.create_task(process.claims.wait())
            until = world.chance.choice((None, world.chance.uniform(0, 20)))
            await asyncio.wait([polling, claims], timeout=until, return_when=asyncio.FIRST_COMPLETED)
            claims.cancel()
            # Before Redis executes the claim, or before its answer is here.
            await asyncio.wait([polling], timeout=world.chance.uniform(0, 0.01))
            if not polling.done():
                polling.cancel()
                await asyncio.wait([polling])
        return None if polling.cancelled() else await polling
    except asyncio.CancelledError:
        polling.cancel()
        raise


async def _serve(world: World, name: str, relay: Relay, request: Collected) -> None:
    number = int(request.headers["number"])
    run = runs.Run(number, name, world.now())
    world.runs.append(run)
    world.note(f"{name}: call {number} runs")
    plan = next((call for call in world.scenario.calls if call.number == number), None)
    abandoned = asyncio.create_task(request.wait_abandoned())
    try:
        works = asyncio.create_task(asyncio.sleep(plan.takes if plan else 0.0))
        await asyncio.wait([works, abandoned], return_when=asyncio.FIRST_COMPLETED)
        if abandoned.done():
            run.abandoned = (world.now(), type(abandoned.result()).__name__)
            world.note(f"{name}: call {number} is abandoned, {run.abandoned[1]}")
        if plan is not None and plan.stubborn:
            await works
        works.cancel()
        run.ended = world.now()
        with suppress(RelayError):
            if plan is not None and plan.fails:
                await request.fail("as planned")
            else:
                await relay.apply_response(request.id, Answer(b"answer %d" % number))
    finally:
        abandoned.cancel()


async def _make(world: World, process: Process, plan: CallPlan) -> None:
    await asyncio.sleep(max(0.0, plan.at - world.now()))
    await call(world, process, plan)


async def call(world: World, process: Process, plan: CallPlan) -> None:
    """Make a call, cancel it where that is planned, and note what it came to."""
    world.note(f"call {plan.number} begins: {plan}")
    made = process.relay.start(
        plan.endpoint,
        runs.request(plan.number),
        pickup_timeout=plan.pickup_timeout,
        timeout=plan.timeout,
    )
    waits = asyncio.create_task(_wait(world, made, plan.number))
    try:
        if plan.cancel_after is not None:
            await asyncio.wait([waits], timeout=plan.cancel_after)
            if plan.cancel_task and not waits.done():
                waits.cancel()
                world.ended[plan.number] = runs.CallResult(world.now(), "walked away")
            else:
                with suppress(RelayError):
                    cancelled = await made.cancel()
                    world.note(f"call {plan.number} is cancelled: {cancelled.stage}")
        await asyncio.wait([waits])
    except asyncio.CancelledError:
        waits.cancel()
        if process.dead:
            world.orphaned.setdefault(plan.number, world.now())
        raise


async def _wait(world: World, made: Call, number: int) -> None:
    try:
        response = await made.response()
        ended = runs.CallResult(world.now(), "response", response.body.decode())
    except RelayError as error:
        ended = runs.CallResult(world.now(), type(error).__name__, str(getattr(error, "stage", "")))
    world.ended[number] = ended
    world.note(f"call {number} ends: {ended.what} {ended.detail}")


def trouble(world: World, plan: Trouble) -> None:
    """Let a process die or stand still."""
    process = world.alive.get(plan.who)
    if process is None:
        return
    if plan.still is not None:
        world.note(f"{plan.who} stands still for {plan.still} s")
        process.stand_still(plan.still)
    else:
        process.die()


def start_again(world: World, name: str) -> None:
    """Start what has died."""
    if name in world.alive:
        return
    if name.startswith("server"):
        start_server(world, name)
    else:
        start_caller(world, name, world.scenario.calls)


def probe(world: World, endpoints: Iterable[str]) -> None:
    """Call each endpoint once from each caller: after all troubles, each must be answered."""
    number = _PROBES
    for name, process in list(world.alive.items()):
        for endpoint in endpoints if name.startswith("caller") else ():
            plan = CallPlan(number, world.now(), 0, endpoint, 0.0, 40.0, None, None, False, False, False)
            world.probes.add(number)
            process.spawn(call(world, process, plan))
            number += 1
