"""A client over a fork, on a real broker: the fork hears that it needs one of its own, and harms no other process."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from osrdyne_amqp import Connection
from osrdyne_client import AsyncClient, Client
from osrdyne_client.errors import OsrdyneError
from testbed.forked import RaisedError, in_fork
from testbed.peer import administrator, peer_of
from testbed.pool import Pool
from tests.broker.test_client import reply_queues
from tests.broker.test_client_docs import blocks


@pytest.fixture
async def pool(make_pool: Callable[..., Pool]) -> AsyncIterator[Pool]:
    """A pool whose worker of key 42 answers with the question."""
    pool = make_pool()
    async with peer_of(pool, "42", lambda message: message.body):
        yield pool


def refused(action: Callable[[], Any]) -> str:
    """Return the type of what an action raises."""
    try:
        action()
    except OsrdyneError as error:
        return type(error).__name__
    return "nothing"


async def test_a_fork_of_a_client_hears_that_it_needs_its_own_and_leaves_the_connection_as_it_is(pool: Pool) -> None:
    def use() -> None:
        with Client(pool.client_uri, pool.settings.name) as client:
            assert client.call("42", b"before").body == b"before"
            link = client._dispatcher._link

            def child() -> list[str]:
                found = [
                    refused(lambda: client.call("42", b"", timeout=5)),
                    refused(lambda: client.submit("42", b"")),
                    refused(lambda: client.cast("42", b"")),
                    refused(lambda: client.start_cast("42", b"")),
                    refused(client.open),
                    str(client.is_connected),
                ]
                with Client(pool.client_uri, pool.settings.name) as own:
                    found.append(own.call("42", b"own").body.decode())
                client.close()
                client.__exit__(None, None, None)
                return found

            assert in_fork(child) == [*["OtherProcess"] * 5, "False", "own"]

            def drop() -> None:
                nonlocal client
                client.close()
                del client
                gc.collect()

            in_fork(drop)
            # Over the same connection, and to the same reply queue.
            assert client.call("42", b"after").body == b"after"
            assert client._dispatcher._link is link
            assert len(reply_queues(pool)) == 1

    await asyncio.to_thread(use)
    assert not await asyncio.to_thread(reply_queues, pool)


async def test_the_error_of_a_fork_says_what_to_do(pool: Pool) -> None:
    def use() -> Any:
        with Client(pool.client_uri, pool.settings.name) as client:
            return in_fork(lambda: client.call("42", b"", timeout=5))

    found = await asyncio.to_thread(use)
    assert isinstance(found, RaisedError)
    assert found.kind == "OtherProcess"
    assert "open another one after the fork" in found.text


async def test_a_client_that_is_made_before_a_fork_may_be_opened_in_it(pool: Pool) -> None:
    client = Client(pool.client_uri, pool.settings.name)

    def child() -> bytes:
        with client:
            return client.call("42", b"in the fork").body

    assert await asyncio.to_thread(in_fork, child) == b"in the fork"


async def test_a_fork_of_an_asyncio_program_hears_the_same(pool: Pool) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        assert (await client.call("42", b"before")).body == b"before"
        link = client._dispatcher._link

        async def child() -> list[str]:
            found = []
            for ask in (client.call, client.cast):
                try:
                    await ask("42", b"", timeout=5)
                except OsrdyneError as error:
                    found.append(type(error).__name__)
            found.append(refused(lambda: client.submit("42", b"")))
            await client.close()
            async with AsyncClient(pool.client_uri, pool.settings.name) as own:
                found.append((await own.call("42", b"own")).body.decode())
            return found

        # The answers to the fork's own client come from this loop.
        assert await asyncio.to_thread(in_fork, lambda: asyncio.run(child())) == [*["OtherProcess"] * 3, "own"]
        assert (await client.call("42", b"after")).body == b"after"
        assert client._dispatcher._link is link
        assert len(await asyncio.to_thread(reply_queues, pool)) == 1


async def test_the_programs_of_the_page_ask_from_forks(pool: Pool, tmp_path: Path) -> None:
    processes, calls, gunicorn, celery = blocks("docs/howto/forks.md")
    environment = {**os.environ, "AMQP_URI": pool.client_uri}
    asked = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore::DeprecationWarning", "-c", processes, env=environment, stdout=PIPE
    )
    assert (await asked.communicate())[0].decode() == "['one', 'three', 'two']\n"
    # What gunicorn and Celery do: load the program, fork, and call its hooks in the fork.
    (tmp_path / "calls.py").write_text(calls)
    (tmp_path / "conf.py").write_text(gunicorn)
    (tmp_path / "tasks.py").write_text(celery)
    program = (
        "import calls, conf, os, tasks\n"
        "from celery.signals import worker_process_init, worker_process_shutdown\n"
        "assert conf.preload_app\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "    raise SystemExit\n"
        "conf.post_fork(None, None)\n"
        "worker_process_init.send(None)\n"
        "for client in (calls.client, tasks.client):\n"
        "    print(client.call('42', b'forked', timeout=60).body.decode(), flush=True)\n"
        "conf.worker_exit(None, None)\n"
        "worker_process_shutdown.send(None)\n"
    )
    asked = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=environment, cwd=tmp_path, stdout=PIPE
    )
    assert (await asked.communicate())[0].decode() == "forked\nforked\n"


async def test_a_fork_of_a_bare_connection_hears_the_same_and_closes_nothing(pool: Pool) -> None:
    connection = await Connection.open(administrator(pool), name="forked")
    channel = await connection.channel(confirm=True)

    async def child() -> list[str]:
        def publish() -> None:
            channel.publish("", "nowhere", b"")

        found = [refused(publish)]
        try:
            await connection.channel()
        except OsrdyneError as error:
            found.append(type(error).__name__)
        await connection.close()
        return found

    assert await asyncio.to_thread(in_fork, lambda: asyncio.run(child())) == ["OtherProcess"] * 2
    await channel.publish("", "nowhere", b"")
    await connection.close()
