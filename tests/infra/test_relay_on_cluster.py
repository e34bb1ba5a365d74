"""A pool whose workers poll at the relay, by `pulumi up`, on a real cluster, with a real broker, Redis and bucket."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from osrdyne_relay import RelayError, Request
from osrdyne_relay.client import RelayClient
from osrdyne_relay.http.access import sha256_of
from osrdyne_relay.worker import RelayRequest
from testbed import redis
from testbed.s3.server import S3Server
from testbed.waiting import until
from tests.infra.clustered import RESOURCES, OnCluster
from tests.relay.http_nodes import working_in_thread

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

REDIS_IMAGE = "osrdyne.invalid/redis:test"
WORKER, CALLER = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
NODES, REDIS = "app.kubernetes.io/name=osrdyne-relay", "app.kubernetes.io/name=osrdyne-relay-redis"


@pytest.fixture
def bucket() -> Iterator[S3Server]:
    with S3Server() as own:
        yield own


@pytest.fixture
def stack(fresh: OnCluster, bucket: S3Server) -> OnCluster:
    """A stack with a relay, to which nothing has been done yet. This machine's Redis is in an image."""
    files, command = redis.as_image()
    fresh.cluster.load_image(REDIS_IMAGE, files, command)
    port = int(bucket.endpoint.rpartition(":")[2])
    fresh.cluster.forward(port)
    s3 = {"endpoint": f"http://{fresh.cluster.gateway}:{port}", "bucket": bucket.settings()["bucket"]}
    fresh.values |= {
        "workers": None,
        "relay": {
            "redis": {"image": REDIS_IMAGE, "command": command, "resources": RESOURCES},
            "nodes": {"resources": RESOURCES},
            "clients": {
                "lax": {"token_sha256": sha256_of(WORKER), "serve": ["core/LAX"]},
                "web": {"token_sha256": sha256_of(CALLER), "call": ["core/*"]},
            },
            "pools": ["core"],
            "settings": {"serve": {"plain_http": True}, "streams": {"s3": s3}},
        },
    }
    fresh.more_secrets = {
        "relay_s3_access_key": bucket.access_key_file.read_text().strip(),
        "relay_s3_secret_key": bucket.secret_key_file.read_text().strip(),
    }
    fresh.configure()
    return fresh


def running(stack: OnCluster, selector: str) -> dict[str, dict[str, Any]]:
    """The pods that are ready, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in stack.pods("relay", selector).values()
        if all(status["ready"] for status in pod["status"].get("containerStatuses", [{"ready": False}]))
    }


@contextlib.contextmanager
def node(stack: OnCluster, pod: str) -> Iterator[str]:
    """The address of one node, from this machine."""
    words = ["--namespace", stack.namespace("relay"), "port-forward", f"pod/{pod}", ":8044"]
    with stack.cluster.running_kubectl(*words) as process:
        try:
            assert process.stdout
            found = re.search(r"127\.0\.0\.1:\d+(?= ->)", process.stdout.readline())
            assert found, "the node's port is not forwarded; what kubectl says is on standard error"
            yield f"http://{found[0]}"
        finally:
            process.terminate()


def capitals(request: RelayRequest) -> bytes:
    for name, stream in request.streams.items():
        request.send_stream(name, map(bytes.upper, stream))
    return request.body.upper()


def worker(url: str, place: str = "core/LAX") -> AbstractContextManager[None]:
    """A worker that polls for a place at a node."""
    return working_in_thread(url, place, capitals, token=WORKER)


def ask(stack: OnCluster, body: bytes) -> bytes:
    """The answer to a request of the pool."""
    with stack.client("core") as client:
        answer = client.ask("LAX", body, timeout=120)
    assert answer.status == "ok", answer
    return answer.body


def call(url: str, body: bytes) -> bytes:
    """The answer to a call over a node, with a data stream."""
    with (
        RelayClient(url, token=CALLER) as client,
        client.call("core/LAX", Request(body, streams={"map": [b"a map"]}), timeout=120) as response,
    ):
        assert b"".join(response.streams["map"]) == b"A MAP"
        return response.body


def test_requests_of_a_pool_and_calls_over_nodes_reach_a_worker_that_polls(stack: OnCluster, bucket: S3Server) -> None:
    preview = stack.preview()
    assert preview.code == 0, preview.text
    stack.must_up()

    a, b = running(stack, NODES)
    with node(stack, a) as near, node(stack, b) as far, worker(near):
        assert ask(stack, b"hello") == b"HELLO"
        assert call(far, b"over the other node") == b"OVER THE OTHER NODE"
    stack.must_up("--refresh", "--expect-no-changes")

    # Redis dies: what is new works once it is back
    (before,) = running(stack, REDIS)
    stack.cluster.kubectl("-n", stack.namespace("relay"), "delete", "pod", before)
    until(lambda: running(stack, REDIS).keys() - {before}, every=0.5, what="another Redis")
    with node(stack, a) as near, node(stack, b) as far, worker(near):
        until(lambda: _works(far), every=1.0, what="a call after the death of Redis")
        assert ask(stack, b"again") == b"AGAIN"

    # Another password restarts all that has it, and the changed stack works
    stack.change(relay={**stack.values["relay"], "rotate": "2"})
    until(lambda: len(running(stack, NODES).keys() - {a, b}) == 2, every=0.5, what="new nodes")
    c, d = running(stack, NODES).keys() - {a, b}
    with node(stack, c) as near, node(stack, d) as far, worker(near):
        until(lambda: _works(far), every=1.0, what="a call with another password")
        assert ask(stack, b"third") == b"THIRD"

    # No secret is where it need not be
    kinds = "pods,deployments,replicasets,configmaps,events"
    said = stack.cluster.kubectl("-n", stack.namespace("relay"), "get", kinds, "-o", "yaml")
    for pod in (*running(stack, NODES), *running(stack, REDIS)):
        said += stack.cluster.kubectl("-n", stack.namespace("relay"), "logs", pod)
    secret_key = bucket.secret_key_file.read_text().strip()
    assert secret_key not in said
    assert WORKER not in said
    assert "osrdyne-relay" in said
    assert stack.project.exposed() == []

    # And then nothing is left
    done = stack.destroy()
    assert done.code == 0, done.text
    assert stack.namespaces() == set()


def _works(url: str) -> bool:
    try:
        return call(url, b"x") == b"X"
    except RelayError:
        return False
