"""What the API server's refusals become: a reason, a remedy, and no credential."""

from __future__ import annotations

import json

import pytest

from osrdyne.drivers.kubernetes.refusals import clean, refusal


def refusal_text(status: int, message: str, reason: str = "") -> str:
    body = json.dumps({"kind": "Status", "code": status, "reason": reason, "message": message})
    error = refusal("start key 'a'", status, body)
    assert error.status == status
    assert str(error).startswith(f"cannot start key 'a': {message}; ")
    return str(error)


@pytest.mark.parametrize(
    ("status", "message", "reason", "says"),
    [
        (403, 'deployments.apps is forbidden: User "x" cannot patch resource', "Forbidden", "daemon's Role"),
        (403, 'deployments "a" is forbidden: exceeded quota: few', "Forbidden", "raise the ResourceQuota"),
        (403, "unable to create new content because it is being terminated", "Forbidden", "driver.namespace"),
        (404, 'namespaces "core" not found', "NotFound", "create the namespace"),
        (404, "the server could not find the requested resource", "NotFound", "install KEDA"),
        (409, 'Apply failed with 1 conflict: conflict with "kubectl": .spec.x', "Conflict", "another owner"),
        (422, 'Deployment.apps "a" is invalid', "Invalid", "driver.template_directory"),
        (500, "failed to create typed patch: .spec.x: field not declared in schema", "", "driver.template_directory"),
        (401, "Unauthorized", "Unauthorized", "service account"),
        (429, "too many requests", "TooManyRequests", "tried again"),
        (503, "apiserver is shutting down", "ServiceUnavailable", "in trouble"),
        (418, "I am a teapot", "", "settings of the driver"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(status: int, message: str, reason: str, says: str) -> None:
    assert says in refusal_text(status, message, reason)


@pytest.mark.parametrize("body", ["", "<html>\nBad gateway</html>", "[]", '"x"', "{", "[" * 100_000])
def test_an_answer_that_is_not_a_status_is_reported(body: str) -> None:
    text = str(refusal("list pods", 502, body))
    assert text.startswith("cannot list pods: ")
    assert len(text) < 700
    assert "\n" not in text


def test_a_text_of_the_cluster_shows_no_credential() -> None:
    assert clean("cannot  reach\namqps://user:se%20cret@broker:5671/v") == "cannot reach amqps://***@broker:5671/v"
    assert clean("see http://host/a:b@c and x@y") == "see http://host/a:b@c and x@y"
