"""What the daemon says of a topology that is not complete."""

from __future__ import annotations

from osrdyne.session import incomplete


def test_a_stream_that_alone_is_missing_may_be_late_or_lost_and_both_are_said() -> None:
    said = incomplete(["queue core-events"], "core-events", "osrdyne")

    assert "queue core-events missing; the broker has its bindings and does not list it: it has just started" in said
    assert "`rabbitmqctl eval " in said
    assert "apply it" not in said


def test_whatever_else_is_missing_was_not_applied_and_only_that_is_said() -> None:
    deleted = incomplete(["queue core-events", "binding core-activity-xchg -> core-events"], "core-events", "/")
    other = incomplete(["queue core-orphan"], "core-events", "/")

    assert "queue core-events, binding core-activity-xchg -> core-events missing; apply it (pulumi up, or" in deleted
    assert "queue core-orphan missing; apply it (pulumi up, or" in other
