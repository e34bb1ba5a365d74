"""What the docker driver reads from the engine's answers: whose a container is, what a group does, how one ended."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne.drivers.base import Group, GroupState, How, WorkerEnd
from osrdyne.drivers.docker import endings, engine, facts
from osrdyne.drivers.docker.facts import Container
from osrdyne.errors import DriverError
from osrdyne_protocol import names

NAME = names.engine_name("core", "prod", "42")
ID = "0123456789abcdef" * 4


def listing(*own: str, state: str = "running", **labels: str) -> dict[str, Any]:
    return {
        "Id": ID,
        "Names": [f"/{name}" for name in own],
        "State": state,
        "Labels": {"osrdyne.key": "42", "osrdyne.template": "t", **labels},
    }


def read(listed: dict[str, Any]) -> Container | None:
    return facts.container(listed, "core", "prod")


def test_a_container_is_ours_by_label_and_name() -> None:
    assert read(listing(NAME)) == Container(ID, "42", "t", "running", stopping=False)
    assert read(listing(f"other/{NAME}", NAME)) == Container(ID, "42", "t", "running", stopping=False)
    assert read(listing("made-from-its-image")) is None
    assert read(listing(NAME, **{"osrdyne.key": "43"})) is None
    assert read({**listing(NAME), "Labels": None}) is None


def test_its_name_says_that_a_container_is_to_stop() -> None:
    found = read(listing(facts.stopping_name(NAME, ID)))

    assert found is not None
    assert found.stopping
    assert facts.is_stopping(facts.stopping_name(NAME, ID))
    assert not facts.is_stopping(NAME)
    assert read(listing(facts.stopping_name(NAME, "f" * 64))) is None


def test_a_container_that_is_being_removed_is_none() -> None:
    assert read(listing(NAME, state="removing")) is None


@pytest.mark.parametrize(
    "state, stopping, found",
    [
        ("running", False, (GroupState.RUNNING, 1)),
        ("paused", False, (GroupState.RUNNING, 1)),
        ("restarting", False, (GroupState.STARTING, 0)),
        ("running", True, (GroupState.STOPPING, 1)),
        ("restarting", True, (GroupState.STOPPING, 0)),
        ("created", False, None),
        ("exited", False, None),
        ("dead", False, None),
        ("exited", True, None),
    ],
)
def test_the_engines_words_mean_these_states(state: str, stopping: bool, found: tuple[GroupState, int] | None) -> None:
    groups = facts.groups([Container(ID, "42", "t", state, stopping)])

    assert groups == ([] if found is None else [Group("42", found[0], found[1], "t")])


@pytest.mark.parametrize("order", [1, -1])
def test_what_follows_a_container_that_stops_is_the_group(order: int) -> None:
    former, next_one = Container("f", "42", "t", "running", True), Container("n", "42", "u", "running", False)

    assert facts.groups([former, next_one][::order]) == [Group("42", GroupState.RUNNING, 1, "u")]


@pytest.mark.parametrize(
    "actions, asked",
    [
        ([], None),
        (["die", "attach"], None),
        (["create", "start", "rename", "kill"], True),
        (["kill"], True),
        (["create", "start", "rename"], False),
        (["rename", "kill", "die", "start"], False),
    ],
)
def test_past_events_say_whether_a_container_was_asked_to_stop(actions: list[str], asked: bool | None) -> None:
    assert facts.was_asked_to_stop([{"Action": action} for action in actions]) is asked


@pytest.mark.parametrize(
    "state, code, text",
    [
        ({}, 3, "ended with status 3"),
        ({}, 0, "ended with status 0"),
        ({}, 137, "ended by SIGKILL (status 137)"),
        ({}, 128 + 33, "ended by signal 33 (status 161)"),
        ({}, 255, "ended with status 255"),
        ({"OOMKilled": True}, 137, "was killed because it used more memory than HostConfig.Memory"),
        (
            {"StartedAt": "2026-11-21T17:00:00.123456789Z", "FinishedAt": "2026-11-21T17:00:01.623456789Z"},
            3,
            "ended with status 3 after 1.5 s",
        ),
        ({"StartedAt": "2026-11-21T17:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"}, 3, "ended with status 3"),
        # The engine noted its begin too late
        (
            {"StartedAt": "2026-11-21T17:00:00.2Z", "FinishedAt": "2026-11-21T17:00:00.1Z"},
            3,
            "ended with status 3 after 0.0 s",
        ),
        # The engine has started it again
        (
            {"StartedAt": "2026-11-21T17:00:01Z", "FinishedAt": "2026-11-21T17:00:00Z", "Running": True},
            3,
            "ended with status 3",
        ),
    ],
)
def test_an_end_is_reported_with_status_and_run_time(state: dict[str, Any], code: int, text: str) -> None:
    assert endings.how(state, code).startswith(text)
    assert ("after" in endings.how(state, code)) == ("after" in text)


@pytest.mark.parametrize(
    ("state", "code", "end"),
    [
        ({}, 3, WorkerEnd(How.EXIT, 3)),
        ({}, 139, WorkerEnd(How.SIGNAL, 11)),
        ({"OOMKilled": True}, 137, WorkerEnd(How.MEMORY)),
        (
            {"StartedAt": "2026-11-21T17:00:00.5Z", "FinishedAt": "2026-11-21T17:00:02Z"},
            1,
            WorkerEnd(How.EXIT, 1, seconds=1.5),
        ),
    ],
)
def test_how_a_worker_ended_is_a_value(state: dict[str, Any], code: int, end: WorkerEnd) -> None:
    assert endings.end(state, code) == end


def test_a_worker_is_known_by_the_identity_that_its_container_was_given() -> None:
    assert facts.worker_id({"Config": {"Env": ["A=1", "WORKER_ID=echo-a-1"]}}) == "echo-a-1"
    assert facts.worker_id({"Config": {"Env": None}}) is facts.worker_id(None) is None


@pytest.mark.parametrize(
    "text, cause",
    [
        ("Error: ('Connection aborted.', PermissionError(13, 'Permission denied'))", "Permission denied"),
        ("NewConnectionError('<...>: Failed: [Errno 111] Connection refused')", "Connection refused"),
        (
            "NameResolutionError(\"Failed to resolve 'x' ([Errno -2] Name or service not known)\")",
            "Name or service not known",
        ),
        ("no TLS for you", "no TLS for you"),
    ],
)
def test_a_failed_connection_is_reported_in_the_systems_own_words(text: str, cause: str) -> None:
    assert engine._cause(OSError(text)) == cause


@pytest.mark.parametrize("version", ["23.0.0", "23.0.6", "24.0.2", "24.0.2-ce"])
def test_an_engine_that_kills_what_should_finish_is_refused(version: str) -> None:
    with pytest.raises(DriverError, match=r"update it to 24\.0\.3"):
        engine.refuse(version)


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "24.0.3", "28.2.2", "unknown", ""])
def test_other_engines_are_taken(version: str) -> None:
    engine.refuse(version)
