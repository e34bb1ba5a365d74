"""Headers, events, statuses and the worker's environment: what peers of any kind read and send."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_protocol import events, headers, statuses, worker_environment
from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import MissingVariable
from osrdyne_protocol.worker_environment import WorkerEnvironment

ENVIRONMENT = WorkerEnvironment("id-1", "a/b", "core", "core-req-a/b", "core-activity-xchg", "amqp://u:secret@h/v")


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["ok", b"ok", bytearray(b"ok")])
def test_a_header_is_read_from_a_string_and_from_a_byte_array(value: object) -> None:
    assert headers.text(value) == "ok"


@pytest.mark.parametrize("value", [None, 1, True, 1.5, b"\xff", ["ok"], {"a": "ok"}])
def test_a_header_that_is_not_text_is_none(value: object) -> None:
    assert headers.text(value) is None


@pytest.mark.parametrize(
    ("value", "read"), [(5, 5), (0, 0), (-1, -1), (True, None), ("5", None), (5.0, None), (None, None)]
)
def test_a_whole_number_is_read_from_an_integer_only(value: object, read: int | None) -> None:
    assert headers.integer({"x-deadline": value}, headers.X_DEADLINE) == read


def test_an_absent_number_is_none() -> None:
    assert headers.integer({}, headers.X_DEADLINE) is None


@pytest.mark.parametrize(
    "request_headers, sent",
    [({"x-rpc-path": b"/a"}, b"ok"), ({"x-rpc-path": "/a"}, "ok"), ({"other": b"/a"}, "ok"), ({}, "ok"), (None, "ok")],
)
def test_a_status_has_the_type_that_the_caller_is_known_to_read(
    request_headers: dict[str, object] | None, sent: str | bytes
) -> None:
    assert headers.status_for(request_headers, "ok") == sent


# --- events -----------------------------------------------------------------------------------------------------------


def test_an_event_has_type_identity_and_time_and_only_what_is_known() -> None:
    made = events.headers(events.STARTED, now_ms=1234)

    assert made.keys() == {"x-event", "x-event-id", "x-event-time"}
    assert (made["x-event"], made["x-event-time"]) == ("started", 1234)
    assert re.fullmatch("[0-9a-f]{32}", str(made["x-event-id"]))


def test_an_event_carries_worker_request_outcome_and_duration() -> None:
    made = events.headers("finished", now_ms=1, worker_id="w", request_id="r", outcome="ok", duration_ms=0)

    assert {name: made[name] for name in ("x-worker-id", "x-request-id", "x-outcome", "x-duration-ms")} == {
        "x-worker-id": "w",
        "x-request-id": "r",
        "x-outcome": "ok",
        "x-duration-ms": 0,
    }


def test_no_two_events_share_an_identity() -> None:
    assert len({events.headers("alive", now_ms=1)["x-event-id"] for _ in range(100)}) == 100


def test_neither_an_end_nor_the_daemons_own_events_are_activity() -> None:
    assert events.STOPPING not in events.ACTIVITY
    assert events.ACTIVITY.isdisjoint(events.LIFECYCLE)


# --- statuses ---------------------------------------------------------------------------------------------------------


def test_every_status_has_a_meaning() -> None:
    named = {value for name, value in vars(statuses).items() if name.isupper() and isinstance(value, str)}

    assert named == statuses.STATUSES.keys()
    assert named > statuses.DEAD_LETTER_REASONS
    assert all(text.endswith(".") for text in statuses.STATUSES.values())


# --- the worker's environment -----------------------------------------------------------------------------------------


def test_the_environment_survives_the_way_to_a_worker() -> None:
    assert WorkerEnvironment.from_environ(ENVIRONMENT.to_environ() | {"PATH": "/bin"}) == ENVIRONMENT


def test_the_environment_survives_a_real_process() -> None:
    program = shutil.which("env")
    assert program
    key = "é a\nb=c"
    environment = WorkerEnvironment("id", key, "core", "q", "x", "amqp://h").to_environ()
    shown = subprocess.run([program, "-0"], env=environment, capture_output=True, check=True).stdout

    assert f"WORKER_KEY={key}".encode() in shown.split(b"\0")


def test_the_environment_has_the_six_variables_of_the_protocol_and_optional_ones() -> None:
    named = worker_environment.VARIABLES
    with_file = replace(ENVIRONMENT, amqp_uri_file="/run/worker.uri", consumer_timeout_ms=1500)

    assert ENVIRONMENT.to_environ().keys() == named - {"WORKER_AMQP_URI_FILE", "WORKER_CONSUMER_TIMEOUT"}
    assert len(ENVIRONMENT.to_environ()) == 6
    assert with_file.to_environ().keys() == named
    assert WorkerEnvironment.from_environ(with_file.to_environ()) == with_file


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "1.5", "²"])
def test_a_consumer_timeout_that_is_not_a_number_is_none(text: str) -> None:
    environment = ENVIRONMENT.to_environ() | {"WORKER_CONSUMER_TIMEOUT": text}
    assert WorkerEnvironment.from_environ(environment) == ENVIRONMENT


def test_every_missing_variable_is_named() -> None:
    environment = ENVIRONMENT.to_environ()
    del environment["WORKER_KEY"], environment["WORKER_AMQP_URI"]

    with pytest.raises(MissingVariable, match=r"WORKER_KEY, WORKER_AMQP_URI not set: .* started by the daemon"):
        WorkerEnvironment.from_environ(environment)


def test_an_address_that_is_in_a_file_alone_is_not_missing() -> None:
    in_file = replace(ENVIRONMENT, amqp_uri="", amqp_uri_file="/run/worker.uri")

    assert "WORKER_AMQP_URI" not in in_file.to_environ()
    assert WorkerEnvironment.from_environ(in_file.to_environ()) == in_file


def test_an_empty_key_is_not_missing() -> None:
    assert WorkerEnvironment.from_environ(ENVIRONMENT.to_environ() | {"WORKER_KEY": ""}).key == ""


def test_the_credential_is_in_no_representation() -> None:
    assert "secret" not in repr(ENVIRONMENT)


# --- durations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        ("PT1M30S", 90),
        ("PT0.5S", 0.5),
        ("P1DT1H", 90_000),
        ("PT10M", 600),
        ("P7D", 604_800),
    ],
)
def test_a_duration_is_seconds_or_iso_8601_text(value: object, seconds: float) -> None:
    assert parse_seconds(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        "",
        "P",
        "PT",
        "10",
        "10m",
        "PT-1S",
        "P1Y",
        "P1M",
        "pt1s",
        "PT1M ",
    ],
)
def test_what_is_not_a_duration_is_refused_with_what_would_be_right(value: object) -> None:
    with pytest.raises(ValueError, match=r"not a duration.*give seconds \(90 or 1.5\) or ISO 8601 text"):
        parse_seconds(value)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 9999))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_seconds(f"PT{hours}H{minutes}M{seconds}S") == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize("step", [3_600_000, -3_600_000])
def test_a_steady_wall_clock_goes_by_the_monotonic_one_and_is_rounded_up(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monotonic = 50.0
    monkeypatch.setattr(events, "wall_ms", lambda: 1_700_000_000_000)
    steady = events.steady_ms(lambda: monotonic)
    assert steady() == 1_700_000_000_000
    monkeypatch.setattr(events, "wall_ms", lambda: 1_700_000_000_000 + step)
    monotonic += 2.0001
    assert steady() == 1_700_000_002_001
