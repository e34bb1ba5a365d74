"""What the relay does while Redis or a node stands still, dies or loses data. Nodes of other machines are processes."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from osrdyne_relay import Answer, Collected, DataLost, PeerGone, RedisAway, RedisRefused, Relay, RelayClosed
from testbed.redis import RedisServer
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import until, until_async
from tests.relay.nodes import QUICK, NoAnswers, serving, settings

ROOT = Path(__file__).parents[2]


class NodeProcess:
    """A node in a process of its own; see node_process.py."""

    def __init__(self, role: str, server: RedisServer, folder: Path, **timings: float) -> None:
        self.log = folder / f"{role}.log"
        words = [role, str(server.address_file), str(self.log), json.dumps({**QUICK, **timings})]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.relay.node_process", *words], cwd=ROOT, stdin=subprocess.PIPE, text=True
        )

    def call(self, body: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{body}\n")
        self.process.stdin.flush()

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def until(self, line: str) -> None:
        until(lambda: line in self.lines(), what=f"{line!r} in {self.lines()}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def caller(private_redis: RedisServer, tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess("caller", private_redis, tmp_path)
    yield node
    node.close()


@pytest.fixture
def server(private_redis: RedisServer, tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess("server", private_redis, tmp_path)
    yield node
    node.close()


async def test_a_loss_of_data_ends_calls_on_both_sides_and_new_calls_work_at_once(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[Collected] = []

    async def hold(request: Collected) -> bytes | None:
        if request.body == b"new":
            return b"at once"
        held.append(request)
        return None

    # Only the loss itself can be the reason: looks are far apart.
    node = settings(redis, timings={"look_first": 60.0, "look_every": 60.0})
    async with Relay(node) as near, Relay(node) as far, serving(far, "e", hold):
        calls = [near.start("e", b"old") for _ in range(3)]
        await until_async(lambda: len(held) == 3)
        waiting = near.start("not served", b"old")
        await until_async(lambda: redis.run("EXISTS", f"test:{{not%20served}}:call:{waiting.id}"))
        redis.run("FLUSHALL")

        assert (await near.queue_and_wait("e", b"new")).body == b"at once"
        for call in (*calls, waiting):
            with pytest.raises(DataLost):
                await call.response()
        for request in held:
            assert isinstance(await request.wait_abandoned(), DataLost)
    assert any("lost its data" in record.message for record in caplog.records)


async def test_a_redis_that_was_killed_comes_back_empty_and_serves_new_calls(private_redis: RedisServer) -> None:
    async with (
        Relay(settings(private_redis)) as near,
        Relay(settings(private_redis)) as far,
        serving(far, "e", workers=2),
    ):
        assert (await near.queue_and_wait("e", b"x")).body == b"X"
        waiting = near.start("not served", b"old")
        await until_async(lambda: private_redis.run("EXISTS", f"test:{{not%20served}}:call:{waiting.id}"))
        await asyncio.to_thread(private_redis.kill)
        # It begins while Redis is away, and is not run twice.
        meanwhile = near.start("e", b"y")
        await until_async(lambda: near.redis_away)
        await asyncio.to_thread(private_redis.start)

        with pytest.raises(DataLost):
            await waiting.response()
        # Where it had been sent before the kill was noticed, it may have run.
        with suppress(DataLost):
            assert (await meanwhile.response()).body == b"Y"
        assert (await near.queue_and_wait("e", b"z")).body == b"Z"


async def test_a_server_that_is_no_longer_the_master_is_left(private_redis: RedisServer) -> None:
    def connections() -> set[bytes]:
        """For commands, without the one that asks."""
        found = private_redis.run("CLIENT", "LIST", "TYPE", "normal").splitlines()
        return {line.split()[0] for line in found if b"cmd=client" not in line}

    async with Relay(settings(private_redis)) as near:
        await near.start("e", b"x").cancel()
        before = connections()
        assert before
        private_redis.run("REPLICAOF", "127.0.0.1", 1)
        call = near.start("e", b"y")
        await until_async(lambda: near.redis_away)
        private_redis.run("REPLICAOF", "NO", "ONE")

        # The master that it had may have lost what was written since.
        with suppress(DataLost):
            await call.cancel()
        await near.start("e", b"z").cancel()
        assert not before & connections()


@pytest.mark.parametrize("seconds", [4.0, pytest.param(20.0, marks=pytest.mark.full)])
async def test_an_outage_in_the_middle_of_calls_is_survived_and_each_request_runs_once(
    seconds: float, private_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[bytes] = []
    go_on = asyncio.Event()

    async def work(request: Collected) -> bytes:
        runs.append(request.body)
        await go_on.wait()
        return request.body

    caplog.set_level(logging.WARNING)
    node = settings(private_redis, redis={"answer_timeout": 1.0})
    async with Relay(node) as near, Relay(node) as far, serving(far, "e", work, workers=4):
        early = [near.start("e", b"early %d" % number) for number in range(4)]
        await until_async(lambda: len(runs) == 4)
        private_redis.stand_still()
        go_on.set()
        during = [near.start("e", b"during %d" % number) for number in range(4)]
        await until_async(lambda: near.redis_away and far.redis_away)
        began = asyncio.get_running_loop().time()
        await until_async(lambda: asyncio.get_running_loop().time() > began + seconds)
        private_redis.go_on()
        answers = [await call.response() for call in (*early, *during)]

    assert sorted(answer.body for answer in answers) == sorted(runs)
    assert len(set(runs)) == len(runs) == 8
    # A line of each node when it goes and when it comes.
    assert sum("Redis cannot be used" in record.message for record in caplog.records) == 2


async def test_an_operation_ends_with_an_error_when_redis_stays_away(private_redis: RedisServer) -> None:
    async with Relay(settings(private_redis, timings={"retry_for": 1.0, "response_stays": 60.0})) as near:
        await asyncio.to_thread(private_redis.kill)
        with pytest.raises(RedisAway, match="Error 111"):
            await near.queue_and_wait("e", b"x")
        with pytest.raises(RedisAway):
            await near.dequeue("e")


async def test_a_wrong_password_is_reported_at_once_and_shown_nowhere(redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "address").write_text(f"redis://:hidden-word@127.0.0.1:{redis.port}/0")
    async with Relay(settings(redis, redis={"url_file": str(tmp_path / "address")})) as near:
        with pytest.raises(RedisRefused, match=r"WRONGPASS|invalid") as error:
            await near.queue_and_wait("e", b"x")
    assert "hidden-word" not in str(error.value)


async def test_a_call_ends_when_the_node_that_serves_it_is_killed(
    private_redis: RedisServer, server: NodeProcess
) -> None:
    async with Relay(settings(private_redis)) as near:
        call = near.start("e", b"a 600")
        await asyncio.to_thread(server.until, "run a 600")
        server.signal(signal.SIGKILL)

        with pytest.raises(PeerGone):
            await call.response()


@pytest.mark.full
async def test_a_call_ends_when_the_node_that_serves_it_stands_still_and_its_late_answer_is_refused(
    private_redis: RedisServer, server: NodeProcess
) -> None:
    async with Relay(settings(private_redis)) as near:
        call = near.start("e", b"a 600")
        await asyncio.to_thread(server.until, "run a 600")
        server.signal(signal.SIGSTOP)
        with pytest.raises(PeerGone):
            await call.response()
        server.signal(signal.SIGCONT)

        await asyncio.to_thread(server.until, "abandoned a 600: CallerGone")
        assert (await near.queue_and_wait("e", b"b 0")).body == b"done"
    assert server.lines().count("run a 600") == 1


@pytest.mark.full
async def test_a_worker_learns_that_the_node_of_its_caller_was_killed(
    private_redis: RedisServer, caller: NodeProcess
) -> None:
    async with Relay(settings(private_redis)) as far:
        caller.call("a 600")
        while (request := await far.dequeue("e")) is None:
            pass
        caller.signal(signal.SIGKILL)

        assert type(await request.wait_abandoned()).__name__ == "CallerGone"


@pytest.mark.full
async def test_a_long_call_lives_while_both_nodes_beat(private_redis: RedisServer, server: NodeProcess) -> None:
    async with Relay(settings(private_redis)) as near:
        # Twice as long as a silent node would be waited for.
        assert (await near.queue_and_wait("e", b"a 7")).body == b"done"


@pytest.mark.full
async def test_a_caller_that_stood_still_hears_that_its_request_was_abandoned(
    private_redis: RedisServer, caller: NodeProcess
) -> None:
    async with Relay(settings(private_redis)) as far:
        caller.call("a 600")
        while (request := await far.dequeue("e")) is None:
            pass
        caller.signal(signal.SIGSTOP)
        await request.wait_abandoned()
        caller.signal(signal.SIGCONT)

        await asyncio.to_thread(caller.until, "a 600: PeerGone")


@pytest.mark.full
async def test_nodes_whose_clocks_differ_by_a_day_do_not_notice(private_redis: RedisServer, tmp_path: Path) -> None:
    # The wall clock of a process is what `time.time` returns; the relay does not ask.
    program = "import time, runpy, sys; time.time = lambda _=time.time: _() - 86400; sys.argv[0] = 'x'; "
    program += "runpy.run_module('tests.relay.node_process', run_name='__main__')"
    log = tmp_path / "server.log"
    words = ["server", str(private_redis.address_file), str(log), json.dumps(QUICK)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, *words, cwd=ROOT)
    try:
        async with Relay(settings(private_redis)) as near:
            assert (await near.queue_and_wait("e", b"a 2")).body == b"done"
    finally:
        process.kill()
        await process.wait()


async def test_an_answer_that_redis_did_not_take_in_time_is_written_once_it_does(redis: RedisServer) -> None:
    node = settings(redis, timings={"retry_for": 1.0})
    away = NoAnswers(node)
    async with Relay(node) as near, Relay(node, redis=away) as far:
        call = near.start("e", b"x")
        request = await far.dequeue("e")
        assert request is not None
        # Its worker does not try again
        with pytest.raises(RedisAway):
            await request.apply(Answer(b"y"))
        away.holds = False
        assert (await call.response()).body == b"y"
        # And another attempt does no harm
        await request.apply(Answer(b"z"))
        await request.fail("too late")


async def test_a_node_is_closed_in_time_while_redis_answers_nothing_and_its_calls_hear_of_it(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with TcpProxy(redis.port) as proxy:
        address = tmp_path / "address"
        address.write_text(redis.address_file.read_text().replace(f":{redis.port}", f":{proxy.port}"))
        async with Relay(settings(redis, redis={"url_file": str(address)})) as relay:
            waiting = asyncio.create_task(relay.queue_and_wait("e", b""))
            call = relay.start("e", b"")
            await relay.ask_redis()
            proxy.silence()
            cancelling = asyncio.create_task(call.cancel())
            async with asyncio.timeout(3.5):
                await relay.close()
            for task in (waiting, cancelling):
                with pytest.raises(RelayClosed):
                    await task
