"""What infrastructure writes for the relay's Redis and nodes is that of the page, works, and is checked by commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from redis.exceptions import NoPermissionError

import steps
from osrdyne_relay import Relay
from osrdyne_relay.redis import server as redis_server
from testbed.command_line import osrdyne
from testbed.redis import RedisServer
from tests.relay.nodes import serving, settings
from tests.relay.test_access import rules_of_the_page

SECTION = Path(steps.ROOT, "docs/howto/relay-nodes.md").read_text().split("## What Redis needs\n")[1].split("\n## ")[0]


def test_the_page_has_the_settings_and_the_rules_that_infrastructure_writes() -> None:
    [lines] = re.findall(r"^```text\n(save.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert lines == redis_server.settings()
    assert rules_of_the_page() == ["on", ">word", *redis_server.rules("test").split()]


def test_the_command_prints_them_with_a_hash_in_place_of_the_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a word\n")
    done = osrdyne("relay", "redis", "--json", "--prefix", "trains", "--password-file", str(tmp_path / "password"))

    assert json.loads(done.out) == {
        "settings": redis_server.settings(),
        "acl": redis_server.acl("trains", "a word"),
    }
    assert b"a word" not in done.out
    plain = osrdyne("relay", "redis", "--password-file", str(tmp_path / "password")).out.decode()
    assert redis_server.acl("osrdyne-relay", "a word") in plain
    assert redis_server.settings() in plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--prefix", "Trains", "--password-file", "/dev/null"), "relay.prefix"),
        (("--password-file", "/dev/null"), "--password-file: is empty"),
        (("--password-file", "/nowhere"), "--password-file: cannot be read"),
    ],
)
def test_what_it_cannot_use_is_named(words: tuple[str, ...], said: str) -> None:
    done = osrdyne("relay", "redis", *words)

    assert done.code == 2
    assert said in done.line


async def test_the_user_of_the_acl_file_serves_and_may_do_nothing_else(redis: RedisServer, tmp_path: Path) -> None:
    closed, user = redis_server.acl("test", "a word").splitlines()
    assert closed == "user default off"
    _, name, *rules = user.split()
    redis.run("ACL", "SETUSER", name, "reset", *rules)
    (tmp_path / "password").write_text("a word\n")
    access = {"url_file": None, "url": f"redis://test@127.0.0.1:{redis.port}/0"}
    node = settings(redis, redis={**access, "password_file": str(tmp_path / "password")})

    async with Relay(node) as near, Relay(node) as far, serving(far, "e"):
        assert (await near.queue_and_wait("e", b"x")).body == b"X"
    with pytest.raises(NoPermissionError):
        redis.run("CONFIG", "GET", "save", user="test", password="a word")
    redis.run("ACL", "DELUSER", name)


def test_files_of_a_node_are_checked_without_a_node(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text('[clients.a]\ncertificates = ["a"]\ncall = ["maps/*"]\n')
    (tmp_path / "relay.toml").write_text('[relay.redis]\nurl = "redis://127.0.0.1"\n')
    files = ("--access-file", str(tmp_path / "access.toml"), "--settings", str(tmp_path / "relay.toml"))
    assert osrdyne("relay", "check", *files).code == 0

    (tmp_path / "access.toml").write_text('[clients.a]\ncall = ["*maps"]\n')
    done = osrdyne("relay", "check", *files)
    assert done.code == 2
    assert "clients.a.call[0]" in done.line
    (tmp_path / "relay.toml").write_text("[relay]\nprefixes = 1\n")
    assert "relay." in osrdyne("relay", "check", *files[2:]).line
    assert "give --settings FILE or --access-file FILE" in osrdyne("relay", "check").line
