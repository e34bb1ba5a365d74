"""What the objects of a cluster say about groups, and what of it a person sees."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne.drivers.base import How, WorkerEnd
from osrdyne.drivers.kubernetes import facts
from osrdyne.drivers.kubernetes.facts import PodFacts
from osrdyne.drivers.kubernetes.manifests import key_hash

Manifest = dict[str, Any]


def metadata(key: str = "a", version: int = 1, **more: Any) -> Manifest:
    return {
        "name": "echo-a",
        "uid": "u1",
        "resourceVersion": str(version),
        "labels": {"osrdyne/key-hash": key_hash(key)},
        "annotations": {"osrdyne/key": key, "osrdyne/template": "t1"},
        **more,
    }


def container(name: str = "worker", *, ended: Manifest | None = None, **state: Manifest) -> Manifest:
    made: Manifest = {"name": name, "image": "worker:1", "state": state}
    if ended is not None:
        made["lastState"] = {"terminated": ended}
    return made


def terminated(code: int = 3, identity: str = "c1", **more: Any) -> Manifest:
    return {
        "exitCode": code,
        "reason": "Error",
        "containerID": identity,
        "startedAt": "2026-11-21T10:00:00Z",
        "finishedAt": "2026-11-21T10:00:07Z",
        **more,
    }


def pod(*containers: Manifest, version: int = 1, leaving: bool = False, **status: Any) -> PodFacts:
    more = {"deletionTimestamp": "2026-11-21T10:00:00Z"} if leaving else {}
    manifest = {"metadata": metadata(version=version, **more), "status": {"containerStatuses": [*containers], **status}}
    found = facts.pod(manifest, "worker")
    assert found is not None
    return found


RUNNING = container(running={})


def news(before: PodFacts | None, now: PodFacts) -> list[str]:
    return [text for text, _ in facts.news(before, now)]


@pytest.mark.parametrize(
    ("ended", "how", "code"),
    [
        (terminated(3), How.EXIT, 3),
        (terminated(139), How.SIGNAL, 11),
        (terminated(137, reason="OOMKilled"), How.MEMORY, None),
        (terminated(128, reason="StartError"), How.NO_START, None),
    ],
)
def test_how_a_worker_ended_is_a_value(ended: Manifest, how: How, code: int | None) -> None:
    ended["message"] = "Traceback\n\nno amqp://worker:secret@broker/v here\n"
    [(_, end)] = facts.news(pod(RUNNING), pod(container(terminated=ended)))
    assert (end.how, end.code, end.worker_id, end.seconds) == (how, code, "echo-a", 7.0)
    assert end.output == ("Traceback", "no amqp://***@broker/v here")


def test_what_keeps_a_pod_from_running_is_a_start_that_failed() -> None:
    [(_, end)] = facts.news(None, pod(container(waiting={"reason": "ErrImageNeverPull"})))
    assert end == WorkerEnd(How.NO_START)


def test_a_worker_runs_when_its_container_does() -> None:
    assert pod(RUNNING).running
    assert not pod(container(waiting={"reason": "ContainerCreating"})).running
    assert not pod().running
    # A container beside it is not a worker
    assert not pod(container("beside", running={}), container(waiting={})).running
    # But a group of an older template may have called it otherwise
    assert pod(container("former", running={})).running


def test_an_exit_is_reported_once_with_its_status_and_run_time() -> None:
    running, ended = pod(RUNNING), pod(container(terminated=terminated()))
    assert news(running, ended) == ["worker ended with status 3 after 7 s"]
    # And not again while it waits for its restart, nor once it runs again
    waiting = pod(container(waiting={"reason": "CrashLoopBackOff"}, ended=terminated()))
    again = pod(container(running={}, ended=terminated()))
    assert news(ended, waiting) == news(waiting, again) == []
    # But the next one is
    assert news(again, pod(container(terminated=terminated(0, "c2")))) == ["worker ended with status 0 after 7 s"]


def test_an_exit_that_was_only_seen_when_the_worker_ran_again_is_reported() -> None:
    assert news(pod(RUNNING), pod(container(running={}, ended=terminated()))) != []


def test_at_first_sight_only_what_is_wrong_now_is_news() -> None:
    assert news(None, pod(container(running={}, ended=terminated()))) == []
    assert news(None, pod(container(waiting={"reason": "CrashLoopBackOff"}, ended=terminated()))) != []
    assert news(None, pod(container(waiting={"reason": "ErrImageNeverPull"}))) != []


def test_a_pod_that_is_being_deleted_ends_by_request() -> None:
    assert news(pod(RUNNING), pod(container(terminated=terminated(143)), leaving=True)) == []


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (terminated(137, reason="OOMKilled"), "more memory than its limit after 7 s; raise resources.limits.memory"),
        (
            terminated(128, reason="StartError", message="exec: no such file", startedAt="1970-01-01T00:00:00Z"),
            "no such",
        ),
        (terminated(1, message="first\ncannot reach amqp://worker:verysecret@broker/v"), "amqp://***@broker/v"),
        (terminated(1, startedAt=None), "ended with status 1"),
        (terminated(139), "ended with status 139 (SIGSEGV)"),
        (terminated(137), "ended with status 137 (SIGKILL: from outside, or for more memory than its limit) after 7 s"),
    ],
    ids=["memory", "no program", "last line", "no times", "crashed", "killed"],
)
def test_an_exit_says_what_to_do_and_shows_no_credential(ended: Manifest, says: str) -> None:
    [reported] = news(pod(RUNNING), pod(container(terminated=ended)))
    assert says in reported
    assert "verysecret" not in reported
    assert "first" not in reported


def test_an_init_container_that_has_done_its_work_is_not_an_exit() -> None:
    done = container("init", terminated=terminated(0))
    assert news(pod(), pod(RUNNING, initContainerStatuses=[done])) == []
    failed = container("init", terminated=terminated(1))
    assert news(pod(), pod(initContainerStatuses=[failed])) == ["container init ended with status 1 after 7 s"]


def test_an_image_that_is_missing_is_reported_once_whatever_the_cluster_calls_it() -> None:
    first = pod(container(waiting={"reason": "ErrImagePull", "message": "not found"}))
    then = pod(container(waiting={"reason": "ImagePullBackOff", "message": "back-off"}))
    [reported] = news(pod(), first)
    assert "image worker:1 cannot be had: not found; correct deployment.yaml" in reported
    assert news(first, then) == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}]},
            "no node takes the pod: 0/1 nodes: cpu; lower its requests",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "pod failed: Evicted: low on memory"),
        ({"initContainerStatuses": [container(waiting={"reason": "CreateContainerConfigError"})]}, "cannot be made"),
    ],
)
def test_a_pod_that_cannot_run_is_reported(status: Manifest, says: str) -> None:
    [reported] = news(pod(), pod(**status))
    assert says in reported


def test_a_secret_that_the_node_has_not_seen_yet_is_not_trouble() -> None:
    message = "failed to sync secret cache: timed out waiting for the condition"
    waiting = {"reason": "CreateContainerConfigError", "message": message}
    assert news(pod(), pod(container(waiting=waiting))) == []


def test_pods_that_cannot_be_made_are_reported_with_their_deployment() -> None:
    message = 'pods "echo-a-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    found = facts.deployment({"metadata": metadata(), "status": {"conditions": [condition]}})
    assert found is not None
    assert found.refusal is not None
    assert "exceeded quota: few" in found.refusal
    assert "raise the ResourceQuota" in found.refusal
    fine = facts.deployment({"metadata": metadata(), "status": {"conditions": [{**condition, "status": "False"}]}})
    assert fine is not None
    assert fine.refusal is None


def test_what_is_not_ours_is_not_read() -> None:
    foreign = {"metadata": {"name": "other", "uid": "u", "resourceVersion": "1"}}
    assert facts.deployment(foreign) is None
    assert facts.pod(foreign, "worker") is None
    assert facts.thing(foreign) is None
