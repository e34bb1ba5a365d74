"""A server in Java for tests: small, quick to start, and with one user."""

from __future__ import annotations

import secrets
from abc import abstractmethod

import java
from testbed.kept_server import KeptServer

#: These servers have little to do.
_SMALL = (
    *("-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-XX:-UsePerfData",  # which is a file that a killed one leaves behind
)


class JavaServer(KeptServer):
    """One server."""

    #: The only user, who may do everything.
    user = "bus"

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.password = secrets.token_hex(16)

    @abstractmethod
    def configure(self) -> list[str]:
        """Write what the server reads into its directory, and return what follows `java` and the options of memory."""

    def command(self) -> list[str]:
        return [java.ensure(type(self).__name__), *_SMALL, *self.configure()]
