"""Why nothing is previewed or changed. Every text says what is wrong, where, and what to do."""

from __future__ import annotations

from pulumi import RunError


class InfraError(RunError):
    """Something keeps the stack from being applied. Pulumi prints the text of such an error without a traceback."""


class ConfigurationError(InfraError):
    """A value of the stack's configuration is unknown, missing or of the wrong kind."""

    def __init__(self, path: str, problem: str, example: str) -> None:
        super().__init__(f"{path}: {problem}\nExample:\n  {example}")
        self.path = path


class BrokerUnusable(InfraError):
    """The broker does not answer, or not to this user."""


class ClusterUnusable(InfraError):
    """The cluster does not answer, refuses the credentials, or lacks what the stack needs."""


class DatabaseUnusable(InfraError):
    """The database server does not answer, or refuses what is asked of it."""


class DeploymentRefused(InfraError):
    """What is on the broker would be lost, taken over or not work."""
