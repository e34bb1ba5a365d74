"""A user with only the commands and channels of docs/howto/relay-nodes.md, TLS, and a Redis that no relay can use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from osrdyne_relay import Collected, DataLost, RedisRefused, Relay, RelaySettings, Stage
from osrdyne_relay.redis.client import RedisClient
from osrdyne_relay.redis.port import Away
from osrdyne_relay.redis.transactions import COMMANDS
from testbed.authority import Authority
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.nodes import QUICK, serving, settings

DOCS = Path(__file__).parents[2] / "docs/howto/relay-nodes.md"


def rules_of_the_page() -> list[str]:
    """The ACL rules of docs/howto/relay-nodes.md, for the prefix and password of a test."""
    found = re.search(r"^ACL SETUSER osrdyne-relay (.+)$", DOCS.read_text(), re.MULTILINE)
    assert found is not None
    return found[1].replace(">PASSWORD", ">word").replace("osrdyne-relay:", "test:").split()


async def main_paths(redis: RedisServer, node: RelaySettings) -> None:
    """Call, cancel, time out, lose data, serve again."""
    held: list[Collected] = []

    async def hold(request: Collected) -> bytes | None:
        if request.body != b"hold":
            return request.body.upper()
        held.append(request)
        return None

    async with Relay(node) as near, Relay(node) as far, serving(far, "e", hold, workers=3):
        answers = await asyncio.gather(*(near.queue_and_wait("e", b"x%d" % n) for n in range(20)))
        assert [answer.body for answer in answers] == [b"X%d" % n for n in range(20)]

        running = near.start("e", b"hold")
        await until_async(lambda: len(held) == 1)
        assert (await running.cancel()).stage == Stage.WHILE_RUNNING
        assert (await near.start("f", b"x").cancel()).stage == Stage.NEVER_COLLECTED

        # Beats, and looks.
        running = near.start("e", b"hold")
        await until_async(lambda: len(held) == 2)
        await asyncio.sleep(3 * QUICK["beat_every"])
        redis.run("FLUSHALL")
        with pytest.raises(DataLost):
            await running.response()
        assert (await near.queue_and_wait("e", b"y")).body == b"Y"
        far.forget("e")


async def test_a_user_with_the_rules_of_the_page_can_do_everything_and_nothing_else(
    redis: RedisServer, tmp_path: Path
) -> None:
    redis.run("ACL", "SETUSER", "limited", "reset", *rules_of_the_page())
    (tmp_path / "password").write_text("word\n")
    access = {"url_file": None, "url": f"redis://127.0.0.1:{redis.port}/0"}
    access |= {"user": "limited", "password_file": str(tmp_path / "password")}
    redis.run("ACL", "LOG", "RESET")

    await main_paths(redis, settings(redis, redis=access))

    assert redis.run("ACL", "LOG") == []
    async with Relay(settings(redis, redis=access, prefix="other")) as elsewhere:
        with pytest.raises(RedisRefused, match=r"NOPERM|permission"):
            await elsewhere.queue_and_wait("e", b"x")


async def test_a_changed_password_counts_at_the_next_connection(redis: RedisServer, tmp_path: Path) -> None:
    redis.run("ACL", "SETUSER", "limited", "reset", *rules_of_the_page())
    file = tmp_path / "password"
    file.write_text("word\n")
    access = {"url_file": None, "url": f"redis://limited@127.0.0.1:{redis.port}/0", "password_file": str(file)}
    async with (
        Relay(settings(redis, redis=access)) as near,
        Relay(settings(redis, redis=access)) as far,
        serving(far, "e"),
    ):
        assert (await near.queue_and_wait("e", b"x")).body == b"X"

        file.write_text("other\n")
        redis.run("ACL", "SETUSER", "limited", "resetpass", ">other")
        redis.run("CLIENT", "KILL", "USER", "limited")
        assert (await near.queue_and_wait("e", b"y")).body == b"Y"

        # A file that is away for a moment changes nothing.
        file.unlink()
        redis.run("CLIENT", "KILL", "USER", "limited")
        assert (await near.queue_and_wait("e", b"z")).body == b"Z"


async def test_a_login_added_or_removed_after_the_start_of_a_node_counts_at_the_next_connection(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    redis = private_redis
    redis.run("ACL", "SETUSER", "default", "nopass")
    run = partial(redis.run, user="default")
    run("ACL", "SETUSER", "limited", "reset", *rules_of_the_page())
    file = tmp_path / "address"
    file.write_text(f"redis://127.0.0.1:{redis.port}/0\n")

    def users() -> set[str]:
        return set(re.findall(r" user=(\S+)", str(run("CLIENT", "LIST"))))

    async with Relay(settings(redis, redis={"url_file": str(file)})) as node, serving(node, "e"):
        assert (await node.queue_and_wait("e", b"x")).body == b"X"
        assert "limited" not in users()

        file.write_text(f"redis://limited:word@127.0.0.1:{redis.port}/0\n")
        run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        run("CLIENT", "KILL", "TYPE", "pubsub")
        assert (await node.queue_and_wait("e", b"y")).body == b"Y"
        assert "limited" in users()

        file.write_text(f"redis://127.0.0.1:{redis.port}/0\n")
        run("CLIENT", "KILL", "USER", "limited")
        assert (await node.queue_and_wait("e", b"z")).body == b"Z"
        assert "limited" not in users()


def test_the_rules_of_the_page_name_each_command_that_is_used() -> None:
    commands = {rule[1:] for rule in rules_of_the_page() if rule.startswith("+")}

    assert commands == COMMANDS | {"multi", "exec", "subscribe", "unsubscribe", "ping"}


async def test_each_command_of_the_page_is_needed(redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("word")
    access = {
        "url_file": None,
        "url": f"redis://limited@127.0.0.1:{redis.port}",
        "password_file": str(tmp_path / "password"),
    }
    redis.run("ACL", "SETUSER", "limited", "reset", *rules_of_the_page(), "-hsetnx")
    async with Relay(settings(redis, redis=access)) as near:
        with pytest.raises(RedisRefused):
            await near.queue_and_wait("e", b"x")


@pytest.fixture
def tls_redis(tmp_path: Path) -> Iterator[tuple[RedisServer, Authority]]:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("server", addresses=["127.0.0.1"])
    files = (f"tls-cert-file {own.certfile}", f"tls-key-file {own.keyfile}", f"tls-ca-cert-file {authority.cacertfile}")
    with RedisServer("tls-port TLS_PORT", *files) as server:
        yield server, authority


async def test_over_tls_a_certificate_is_asked_for_and_checked(
    tls_redis: tuple[RedisServer, Authority], tmp_path: Path
) -> None:
    server, authority = tls_redis
    client, other = authority.issue("client"), Authority(tmp_path / "other")
    access = {
        "url_file": None,
        "url": f"rediss://127.0.0.1:{server.tls_port}",
        "password_file": str(tmp_path / "password"),
    }
    (tmp_path / "password").write_text(server.password)
    access |= {"certificate_file": str(client.certfile), "key_file": str(client.keyfile)}

    await main_paths(server, settings(server, redis={**access, "ca_file": str(authority.cacertfile)}))

    wrong = settings(server, redis={**access, "ca_file": str(other.cacertfile)})
    async with Relay(wrong) as near:
        with pytest.raises(RedisRefused, match=f"{other.cacertfile} must hold that CA's certificate"):
            await near.queue_and_wait("e", b"x")


async def test_a_changed_certificate_counts_at_the_next_connection(
    tls_redis: tuple[RedisServer, Authority], tmp_path: Path
) -> None:
    server, authority = tls_redis
    (tmp_path / "password").write_text(server.password)
    own, strange = authority.issue("client"), Authority(tmp_path / "other").issue("client")
    shown, key = tmp_path / "shown.pem", tmp_path / "shown.key"

    def show(certificate: Any) -> None:
        shown.write_bytes(Path(certificate.certfile).read_bytes())
        key.write_bytes(Path(certificate.keyfile).read_bytes())
        server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    access = {
        "url_file": None,
        "url": f"rediss://127.0.0.1:{server.tls_port}",
        "ca_file": str(authority.cacertfile),
        "password_file": str(tmp_path / "password"),
        "certificate_file": str(shown),
        "key_file": str(key),
    }
    show(own)
    client = RedisClient(settings(server, redis=access).redis)
    await client.run(("PING",))
    show(strange)
    for _ in range(3):
        with pytest.raises((Away, RedisRefused)):
            await client.run(("PING",))
    show(own)

    async def answers() -> bool:
        try:
            await client.run(("PING",))
        except (Away, RedisRefused):
            return False
        return True

    await until_async(answers)
    await client.close()


async def test_a_node_of_a_redis_cluster_is_refused_at_once() -> None:
    with RedisServer("cluster-enabled yes", "cluster-port TLS_PORT") as server:
        async with Relay(settings(server)) as node:
            with pytest.raises(RedisRefused, match="It says: CLUSTERDOWN"):
                await node.queue_and_wait("e", b"x")
