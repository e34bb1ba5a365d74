"""What the API server's refusals mean to a person, and what to do about them. Pure; never a token, never a header."""

from __future__ import annotations

import re

from osrdyne.errors import DriverError
from osrdyne_protocol import foreign_json

#: Longest text of a server that is passed on, in characters.
_LONGEST_CHARACTERS = 500

#: A user and a password within an address.
_CREDENTIAL = re.compile(r"://[^\s/@]*:[^\s/@]*@")


class ApiRefused(DriverError):
    """The API server answered that it will not do it. `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        self.away = status == 429 or status >= 500


def refusal(what: str, status: int, body: str) -> ApiRefused:
    """Return the error for a refused request. `what` says what was tried: "start key 'a'"."""
    reason, message = _parse(status, body)
    return ApiRefused(f"cannot {what}: {message}; {_remedy(status, reason, message)}", status)


def clean(text: str) -> str:
    """Return a text of the cluster's on one line, without credentials in addresses, cut where it is too long."""
    line = _CREDENTIAL.sub("://***@", " ".join(text.split()))
    return line if len(line) <= _LONGEST_CHARACTERS else f"{line[:_LONGEST_CHARACTERS]}…"


def _parse(status: int, body: str) -> tuple[str, str]:
    """Return the reason and the message of a `Status` object, or what there is."""
    try:
        answer = foreign_json.read(body)
        reason, message = answer.get("reason"), answer.get("message")
    except (ValueError, AttributeError):
        reason, message = None, body
    return str(reason or ""), clean(str(message or "")) or f"HTTP status {status}"


def _remedy(status: int, reason: str, message: str) -> str:
    if "exceeded quota" in message:
        return "raise the ResourceQuota of the namespace, or run fewer groups"
    if "is being terminated" in message:
        return "the namespace is being deleted; name another in driver.namespace"
    if "field not declared in schema" in message:
        # Answered as a failure of the server (500), and as what it is (400) by later ones.
        return _REMEDIES[400]
    if status == 404 and reason == "NotFound" and "namespaces" in message:
        return "create the namespace, or name another in driver.namespace"
    return _REMEDIES.get(status) or ("the API server is in trouble; it is tried again" if status >= 500 else _OTHER)


_OTHER = "check the templates and the settings of the driver"

_REMEDIES = {
    400: "correct the manifest in driver.template_directory",
    401: "the API server does not know us; check the service account, or the user in driver.kubeconfig",
    403: "allow it in the daemon's Role (see docs/howto/driver-kubernetes.md); or an admission policy forbids it",
    404: "for a ScaledObject install KEDA, or set driver.autoscaling to something else",
    409: "an object of that name has another owner; delete it, or give this instance another name",
    410: "it is listed again",
    422: "correct the manifest in driver.template_directory",
    429: "the API server has too much to do; it is tried again",
}
