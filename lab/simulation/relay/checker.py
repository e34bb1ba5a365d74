"""Judges a run: which calls were lost, which ran twice, and what else is not as docs/explain/relay.md says."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from osrdyne_relay.errors import Stage
from simulation.relay.processes import WORKERS
from simulation.relay.scenario import LOAD_SECONDS, REST_SECONDS, SERVERS, CallPlan, Kind
from simulation.relay.world import SETTINGS, CallResult, Run, World

_TIMES = SETTINGS.timings
#: Seconds within which a worker hears that its caller is gone: silence, a look, and an operation.
_LEARNT_SECONDS = _TIMES.caller_gone_after + 2 * _TIMES.beat_every + _TIMES.retry_for
#: Seconds within which a worker that is free takes a request, where pulses arrive.
_MOMENT_SECONDS = 1.0
#: Seconds within which a loss of data is noticed.
_NOTICED_SECONDS = 60.0
#: What a call may come to where nothing goes wrong.
_AS_PLANNED = {"response", "CallFailed", "Cancelled", "CallTimedOut", "walked away"}
#: What may have caused an error. Without one of these in the run, the error is wrong.
_CAUSES = {
    "DataLost": {Kind.LOSS, Kind.OUTAGE, Kind.ALL},
    "PeerGone": {Kind.CRASHES, Kind.FLAKY, Kind.OUTAGE, Kind.ALL},
    "RedisAway": {Kind.FLAKY, Kind.OUTAGE, Kind.ALL},
    "NotCollected": {Kind.CRASHES, Kind.FLAKY, Kind.OUTAGE, Kind.LOSS, Kind.ALL},
}


@dataclass(slots=True)
class Verdict:
    """What the checker found. Each list holds a sentence a finding."""

    calls: int = 0
    answered: int = 0
    failed: int = 0
    orphaned: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def findings(self) -> list[str]:
        """Return every finding, one a line."""
        return [
            *(f"lost: {call}" for call in self.lost),
            *(f"twice: {call}" for call in self.twice),
            *(f"broken: {rule}" for rule in self.broken),
        ]


def check(world: World) -> Verdict:
    """Judge a run."""
    verdict = Verdict(broken=list(world.wrong))
    times = Counter(run.number for run in world.runs)
    verdict.twice += [f"call {number} ran {count} times" for number, count in times.items() if count > 1]
    for plan in world.scenario.calls:
        _check_call(world, plan, times[plan.number], verdict)
    for number in world.probes:
        ended = world.ended.get(number)
        if ended is None or ended.what != "response":
            verdict.lost.append(f"call {number}, after all troubles, ended with {ended and ended.what}")
    _check_workers(world, verdict)
    _check_losses(world, verdict)
    return verdict


def _check_call(world: World, plan: CallPlan, times: int, verdict: Verdict) -> None:
    ended = world.ended.get(plan.number)
    if plan.number in world.orphaned or (ended is None and not _began(world, plan)):
        verdict.orphaned += 1
        return
    verdict.calls += 1
    if ended is None:
        verdict.lost.append(f"call {plan.number} never ended")
        return
    verdict.answered += ended.what == "response"
    verdict.failed += ended.what != "response"
    verdict.broken += [f"call {plan.number} {text}" for text in _wrong(world, plan, ended, times)]


def _began(world: World, plan: CallPlan) -> bool:
    return any(f"call {plan.number} begins" in line for line in world.trace)


def _wrong(world: World, plan: CallPlan, ended: CallResult, times: int) -> list[str]:
    """Return what is wrong with the end of a call."""
    kind, found = world.scenario.kind, []
    if ended.what == "response" and (times != 1 or ended.detail != f"answer {plan.number}" or plan.fails):
        found.append(f"has the response {ended.detail!r} after {times} runs")
    if (ended.what == "NotCollected" or ended.detail == Stage.NEVER_COLLECTED) and times:
        found.append(f"ended with {ended.what} {ended.detail}, and ran")
    if ended.detail == Stage.WHILE_RUNNING and not times:
        found.append("was cancelled while running, and never ran")
    if ended.what == "CallFailed" and not plan.fails and kind is not Kind.CRASHES and kind is not Kind.ALL:
        found.append("failed, and its worker did not")
    if ended.what == "NotCollected" and _may_be_uncollected(world, plan, ended):
        return found
    if ended.what == "RedisAway":
        return [*found, *_without_cause(world, plan, ended)]
    if ended.what not in _AS_PLANNED and kind not in _CAUSES.get(ended.what, set()):
        found.append(f"ended with {ended.what}, and there was no cause: {kind.value}")
    if kind in (Kind.QUIET, Kind.DEAF) and ended.what == "response":
        late = ended.at - plan.at - plan.takes
        if late > (1.0 if kind is Kind.QUIET else 4 * _TIMES.look_every) and _at_rest(world, plan):
            found.append(f"has its response {late:.1f} s late")
    return found


def _without_cause(world: World, plan: CallPlan, ended: CallResult) -> list[str]:
    """Return what is wrong with a RedisAway: no outage, or a short one and a call whose time was not over."""
    kind, outage = world.scenario.kind, world.scenario.outage
    if kind not in _CAUSES["RedisAway"]:
        return [f"ended with RedisAway, and there was no cause: {kind.value}"]
    in_time = plan.timeout is None or ended.at < plan.at + plan.timeout
    if kind is Kind.OUTAGE and in_time and outage < _TIMES.retry_for - 6:
        return [f"ended with RedisAway after an outage of {outage:.0f} s"]
    return []


def _may_be_uncollected(world: World, plan: CallPlan, ended: CallResult) -> bool:
    """Whether no worker may have got the call although nothing went wrong."""
    if world.scenario.kind is Kind.DEAF and plan.pickup_timeout < _TIMES.look_every + 5:
        return True  # a lost pulse costs as long
    others = {call.number for call in world.scenario.calls if call.endpoint == plan.endpoint}
    runs = [run for run in world.runs if run.number in others]
    if _free_for(runs, plan.at, ended.at) < _MOMENT_SECONDS:
        return True
    # A node held it for a worker that went away, and gave it back because the others were busy.
    busy = [run for run in runs if run.began <= ended.at and _end(run) >= plan.at]
    return ended.at < plan.at + plan.pickup_timeout and bool(busy)


def _free_for(runs: list[Run], begin: float, end: float) -> float:
    """Return for how many seconds of a span some worker of an endpoint was free, from its runs."""
    spans = [(run.began, _end(run)) for run in runs]
    edges = sorted({begin, end, *(at for span in spans for at in span if begin < at < end)})
    return sum(
        after - before
        for before, after in pairwise(edges)
        if sum(began <= before and ended >= after for began, ended in spans) < WORKERS * SERVERS
    )


def _end(run: Run) -> float:
    return math.inf if run.ended is None else run.ended


def _at_rest(world: World, plan: CallPlan) -> bool:
    """Whether a worker was free at the call's begin."""
    busy = [run for run in world.runs if run.began <= plan.at + 1 and (run.ended is None or run.ended >= plan.at)]
    return len(busy) < 2


def _check_workers(world: World, verdict: Verdict) -> None:
    """Find workers that did not learn that their work is not wanted."""
    for run in world.runs:
        since = _unwanted_since(world, run.number)
        died = [at for at, who in world.deaths if who == run.server and at >= run.began]
        troubled = died or any(trouble.who == run.server for trouble in world.scenario.troubles) or world.scenario.away
        if since is None or troubled or run.abandoned is not None:
            continue
        end = run.ended if run.ended is not None else LOAD_SECONDS + REST_SECONDS
        if end - max(since, run.began) > _LEARNT_SECONDS:
            verdict.broken.append(
                f"call {run.number} was not wanted from {since:.0f} on, and its worker did not learn it"
            )


def _unwanted_since(world: World, number: int) -> float | None:
    if number in world.orphaned:
        return world.orphaned[number]
    ended = world.ended.get(number)
    return ended.at if ended is not None and ended.what != "response" else None


def _check_losses(world: World, verdict: Verdict) -> None:
    """Find calls and requests that went on for long after Redis had lost them."""
    if world.scenario.kind is not Kind.LOSS:
        return
    for at in world.scenario.flushes:
        for plan in world.scenario.calls:
            ended = world.ended.get(plan.number)
            if plan.at < at - 1 and ended is not None and ended.at > at + _NOTICED_SECONDS:
                verdict.broken.append(
                    f"call {plan.number} went on for {ended.at - at:.0f} s after the loss at {at:.0f}"
                )
        for run in world.runs:
            over = run.abandoned[0] if run.abandoned else run.ended
            if run.began < at - 1 and over is not None and over > at + _NOTICED_SECONDS:
                verdict.broken.append(f"the worker of call {run.number} did not learn of the loss at {at:.0f}")
