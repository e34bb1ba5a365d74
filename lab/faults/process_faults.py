"""Faults of processes: killed at random, killed at a point, paused, doubled, and one whose wall clock moves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random

from faults import load
from faults.points import Point, Step, begun_to_consume, confirmed_publish
from faults.rig import Rig, kill, owner

#: Seconds within which a named point comes by under this load.
POINT_PATIENCE_SECONDS = 30.0
HOUR = 3600


def daemon_killed(rig: Rig, random: Random) -> str:
    rig.stop_daemon(rig.leader, signal.SIGKILL)
    rig.leader.start()
    return "SIGKILL"


def daemon_killed_before_ack(rig: Rig, random: Random) -> str:
    """The forward, or the error reply, is at the broker, and the daemon does not know: the message comes again."""
    assert rig.leader.process is not None
    pid = rig.leader.process.pid
    points = {"forwarded, not acknowledged": rig.pool.names.request_exchange, "answered, not acknowledged": ""}
    point = random.choice(list(points))
    # Its requests are those that the daemon answers; near the end of a run they rest.
    rig.resume(load.DEAD)
    at_point(rig, "daemon", confirmed_publish(points[point]), lambda _: kill(pid))
    rig.stop_daemon(rig.leader, signal.SIGKILL)
    rig.leader.start()
    return point


def daemon_paused(rig: Rig, random: Random) -> str:
    """The leader stands still until another one leads, and then goes on as if it still did."""
    assert rig.leader.process is not None
    rig.spare.start(ready=False)
    rig.spare.wait_for("standby")
    rig.leader.process.send_signal(signal.SIGSTOP)
    try:
        rig.spare.wait_for("leading")
    finally:
        rig.leader.process.send_signal(signal.SIGCONT)
    rig.leader.wait_for("standby", timeout=60)
    rig.stop_daemon(rig.leader)
    rig.swap_daemons()
    return "SIGSTOP until another led"


def two_daemons(rig: Rig, random: Random) -> str:
    """A second daemon stands by; the first ends, and the second leads."""
    rig.spare.start(ready=False)
    rig.spare.wait_for("standby")
    how = random.choice([signal.SIGKILL, signal.SIGTERM])
    rig.stop_daemon(rig.leader, how)
    rig.spare.wait_for("leading")
    rig.swap_daemons()
    return f"leader ended by {how.name}"


def clock_shifted(rig: Rig, random: Random) -> str:
    """Forward, which lets deadlines pass, and back, which must not hold anything up."""
    for shift in (HOUR, 0, -HOUR, 0):
        rig.clock.shift(shift)
        if shift:
            rig.wait(1.5)
    return "an hour forwards, an hour back"


def worker_killed(rig: Rig, random: Random) -> str:
    key = random.choice(load.WARM)
    rig.until_true(lambda: any(kill(pid) for pid in rig.workers(key)), what=f"a worker of {key}")
    return f"a worker of {key}"


def worker_killed_between_reply_and_ack(rig: Rig, random: Random) -> str:
    """The reply is at the broker, and the request comes again: a duplicate, and no more."""
    at_point(rig, "worker", confirmed_publish(""), lambda port: kill(owner(port, rig.workers())))
    return "answered, not acknowledged"


def worker_killed_after_cold_start(rig: Rig, random: Random) -> str:
    """A worker dies with its first request in its hand, or before."""
    steps: list[Step] = begun_to_consume(rig.pool.names.request_queue(load.COLD))
    at_point(rig, "worker", steps, lambda port: kill(owner(port, rig.workers(load.COLD))))
    return "about to consume a cold key's queue"


def client_killed(rig: Rig, random: Random) -> str:
    kind = random.choice(sorted(rig.clients))
    rig.replace_client(kind)
    return kind


def client_killed_between_publish_and_confirm(rig: Rig, random: Random) -> str:
    """The broker has the request, and its client never learns."""
    pids = {client.process.pid: kind for kind, client in rig.clients.items()}
    killed: list[int] = []

    def act(port: int) -> bool:
        pid = owner(port, list(pids))
        if pid is not None and kill(pid):
            killed.append(pid)
        return bool(killed)

    at_point(rig, "client", confirmed_publish(rig.pool.names.request_exchange), act)
    rig.replace_client(pids[killed[0]])
    return pids[killed[0]]


def at_point(rig: Rig, side: str, steps: list[Step], act: Callable[[int], bool]) -> None:
    """Act once, at a point of a side's conversation. Raises AssertionError when it never comes."""
    point = Point(steps, act)
    remove = rig.proxy.watch(side, point)
    try:
        assert point.done.wait(POINT_PATIENCE_SECONDS), f"the point was not passed within {POINT_PATIENCE_SECONDS:g} s"
    finally:
        remove()
