"""The pages of the relay: their programs and commands run, and their tables are those of the code."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import generate_latest

import steps
from osrdyne_relay import RelaySettings, ServeSettings, errors
from osrdyne_relay.client.addresses import ClientIdentity
from osrdyne_relay.http.access import Access, Grant, sha256_of
from osrdyne_relay.http.app import create_app
from osrdyne_relay.http.metrics import NodeMetrics
from osrdyne_relay.http.node_service import NodeService
from osrdyne_relay.worker import RelayWorker
from osrdyne_runtime.door import Door
from testbed.authority import Authority
from testbed.command_line import osrdyne
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until
from tests.relay.http_nodes import TOKENS
from tests.relay.http_processes import NodeProcess


def page(name: str) -> str:
    return Path(steps.ROOT, "docs", name).read_text()


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)


NODES = "howto/relay-nodes.md"
PROTOCOL = "reference/relay-protocol.md"
SETTINGS_PAGE = "reference/relay-settings.md"
WORKER, CALLER, ASYNC_CALLER = blocks("howto/relay.md", "python")
STREAM_WORKER, STREAM_CALLER, _ = blocks("howto/relay-streams.md", "python")
(BARE_WORKER,) = blocks(PROTOCOL, "python")
SETTINGS, ACCESS = blocks(NODES, "toml")


def rows(name: str, heading: str) -> dict[str, str]:
    """The names that the first table under a heading has, with what is beside them."""
    table = page(name).split(f"## {heading}\n")[1].split("\n## ")[0]
    found = {}
    for names, beside in re.findall(r"^\| (`[a-z_0-9`, ]+`) \|([^|]*)\|", table, re.MULTILINE):
        found.update(dict.fromkeys(re.findall(r"`(\w+)`", names), beside.strip().replace("`", "")))
    return found


@contextmanager
def running(program: str, directory: Path, port: int, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the page, on a node at a port of this machine."""
    text = program.replace("node-a.example:8044", f"127.0.0.1:{port}").replace("/etc/osrdyne", str(directory))
    environment = {"PATH": os.environ["PATH"], "SSL_CERT_FILE": str(directory / "ca.pem"), **variables}
    with subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def output(program: str, directory: Path, port: int) -> bytes:
    """What a program of the page prints."""
    with running(program, directory, port) as process:
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
    return out


@pytest.mark.full
def test_the_programs_of_the_page_work_together(redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "made")
    server, other = authority.issue("server", addresses=["127.0.0.1"]), Authority(tmp_path / "other")
    for name, made in {
        "ca.pem": authority.cacertfile,
        "node.pem": server.certfile,
        "node.key": server.keyfile,
        "clients-ca.pem": other.cacertfile,
        "relay.address": redis.address_file,
    }.items():
        (tmp_path / name).write_text(made.read_text())
    for name in ("worker", "caller"):
        (tmp_path / f"{name}.token").write_text(TOKENS[name])
    (tmp_path / "access.toml").write_text(
        f'[clients.worker]\ntoken_sha256 = "{sha256_of(TOKENS["worker"])}"\nserve = ["maps/LAX"]\n'
        f'[clients.caller]\ntoken_sha256 = "{sha256_of(TOKENS["caller"])}"\ncall = ["maps/*"]\n'
    )
    (tmp_path / "old.map").write_bytes(b"a map" * 100_000)
    text = SETTINGS.replace("/etc/osrdyne", str(tmp_path)).replace("0.0.0.0", "127.0.0.1")
    text = text.replace("/mnt", str(tmp_path))
    with NodeProcess(RelaySettings.from_mapping(tomllib.loads(text)["relay"]), tmp_path, "--port", "0") as node:
        address = asyncio.run(node.url())
        assert address.startswith("https://127.0.0.1:")
        port = int(address.rpartition(":")[2])
        with running(WORKER, tmp_path, port) as worker:
            assert output(CALLER, tmp_path, port) == b"b'answer to question'\n"
            assert output(ASYNC_CALLER, tmp_path, port) == b"b'answer to question'\n"
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE_SECONDS) == 0
        with running(STREAM_WORKER, tmp_path, port):
            assert output(STREAM_CALLER, tmp_path, port) == b"b'converted'\n"
        assert (tmp_path / "new.map").read_bytes() == b"A MAP" * 100_000
        with running(BARE_WORKER, tmp_path, port, RELAY_TOKEN=TOKENS["worker"]):
            assert output(CALLER, tmp_path, port) == b"b'answer to question'\n"
        assert node.end() == 0


def test_the_command_of_the_page_serves_and_ends_at_a_signal(redis: RedisServer, tmp_path: Path) -> None:
    commands, *_ = blocks(NODES, "sh")
    token, serve = (shlex.split(line) for line in commands.splitlines())
    made = osrdyne(*token[1:]).out.decode().splitlines()
    assert made[1] == f'token_sha256 = "{sha256_of(made[0])}"'
    (tmp_path / "access.toml").write_text(f"[clients.a]\n{made[1]}\nserve = ['e']\n")
    settings = RelaySettings.from_mapping(
        {"redis": {"url_file": str(redis.address_file)}, "serve": {"access_file": str(tmp_path / "access.toml")}}
    )
    with NodeProcess(settings, tmp_path, *serve[5:], "--port", "0") as node:
        until(lambda: any(line["message"] == "this node is ready" for line in node.lines()) or node.process.poll())
        assert asyncio.run(node.url()).startswith("http://127.0.0.1:")
        assert node.end() == 0
    assert [line for line in node.lines() if line["level"] != "info"] == []


def test_the_help_of_the_command_names_its_options() -> None:
    said = osrdyne("relay", "serve", "--help")
    assert said.code == 0
    assert {*re.findall(r"(?m)^  (?:-h, )?(--\w+)", said.out.decode())} == {
        *("--settings", "--host", "--port", "--json", "--help")
    }


def test_a_mistake_in_a_settings_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    for text, said in (
        ("", "has no table [relay]"),
        ("[relay.redis]\nurl = 'redis://127.0.0.1'", "relay.serve: is missing"),
        ("[relay.redis]\nurl = 'redis://127.0.0.1'\n[relay.serve]\nmost = 0", "relay.serve.access_file"),
        ("[relay.redis]\nurl = 'redis://127.0.0.1'\n[relay.serve]\naccess_file = '/none'", "cannot be read"),
    ):
        file.write_text(text)
        done = osrdyne("relay", "serve", "--settings", str(file))
        assert done.code == 2
        assert said in done.line


def test_the_settings_of_the_page_are_those_of_the_code() -> None:
    fields = {name: field.default for name, field in ServeSettings.model_fields.items()}
    shown = {"access_file": "-"}
    for name, default in fields.items():
        if isinstance(default, float | int) and not isinstance(default, bool):
            shown[name] = f"{default:.12g}"
        elif name != "access_file":
            shown[name] = "none" if default is None else str(default).lower()

    assert rows(SETTINGS_PAGE, "`[relay.serve]`: a node") == shown


def test_the_options_of_a_worker_on_the_page_are_those_of_the_code() -> None:
    given = inspect.signature(RelayWorker).parameters.values()
    own = {parameter.name for parameter in given if parameter.kind is parameter.KEYWORD_ONLY}
    assert {*rows("howto/relay.md", "A worker")} == own | {*ClientIdentity.__annotations__}


def test_the_entries_of_the_access_file_are_those_of_the_code_and_the_example_is_one(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(ACCESS)
    Access.read(file)

    assert {*rows(NODES, "Who may do what")} == {*Grant.model_fields}


def test_the_errors_and_metrics_of_the_page_are_those_of_the_code() -> None:
    ours = {name for name, var in vars(errors).items() if isinstance(var, type) and issubclass(var, errors.RelayError)}
    on_the_page = {*re.findall(r"`([A-Z]\w+)`", page("reference/relay-errors.md"))}
    assert ours - on_the_page == {"UnreadableRecord", "NodeStopping"}  # which clients do not raise
    rendered = generate_latest(NodeMetrics().registry).decode()
    names = {*re.findall(r"(?m)^# TYPE (\w+) ", rendered)} - {*re.findall(r"(?m)^# TYPE (\w+_created) ", rendered)}
    assert {*re.findall(r"`(osrdyne_relay_\w+)`", page(SETTINGS_PAGE))} == names


async def test_the_requests_of_the_page_are_the_routes_of_the_node() -> None:
    found = set()
    for line in page(PROTOCOL).splitlines():
        if line.startswith("| `"):
            first = line.split("|")[1]
            method = first.split()[0].strip("`")
            found |= {(method, match) for match in re.findall(r"[` ](/[\w/]+)", first) if method.isupper()}
    service: NodeService = object.__new__(NodeService)
    routes = {
        (route.method, route.resource.canonical.replace("{id}", "ID"))
        for route in create_app(service, 1, Door(most=1)).router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert found == routes
