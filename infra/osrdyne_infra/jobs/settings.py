"""What the configuration says of the jobs of pools: the PostgreSQL server that holds them, and how redo runs. Pure."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlsplit

from pydantic import BeforeValidator, Field

from osrdyne_infra import checks
from osrdyne_infra.checks import Filled, Image
from osrdyne_infra.cluster.settings import PullPolicy, Resources
from osrdyne_protocol.names import DatabaseNames
from osrdyne_runtime.settings.model import StrictModel

PostgresAddress = Annotated[str, BeforeValidator(checks.address("postgresql"))]

#: Where a pod finds its address, and the certificate of the CA that vouches for the server.
FOLDER = "/etc/osrdyne/jobs"
ADDRESS_FILE = "jobs.address"
OWNER_FILE = "jobs-owner.address"
AUTHORITY_FILE = "ca.pem"
#: The port of an address that names none.
PORT = 5432


class RedoPods(StrictModel):
    """How the redo processes of all pools with jobs run."""

    #: That of the daemons by default, which has them.
    image: Image = ""
    #: The leader, and those that wait to take over.
    replicas: Annotated[int, BeforeValidator(checks.integer(1, 5))] = 2
    pull_policy: PullPolicy = "IfNotPresent"
    #: More than twice what redo was seen to need with a million due jobs (docs/reference/benchmarks-packages.md).
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}
    )


class JobsPlace(StrictModel):
    """The PostgreSQL server of the pools with jobs, and its administrator."""

    #: As this machine reaches it; no user, no database. Options of TLS in its query, as libpq has them.
    database: PostgresAddress
    #: As the pool's programs reach it, where that is another address.
    inside_database: PostgresAddress = ""
    #: Name of a superuser, or of a user who may make roles and databases.
    admin: Filled
    #: A database that is there, for the administrator to connect to.
    admin_database: Filled = "postgres"
    #: PEM file of the CA that signed the server's certificate, which is then verified.
    cacertfile: Filled = ""
    redo: RedoPods = Field(default_factory=RedoPods)

    @property
    def inside(self) -> str:
        return self.inside_database or self.database

    @property
    def inside_port(self) -> int:
        return urlsplit(self.inside).port or PORT

    def admin_address(self, password: str) -> str:
        return self._address(self.database, self.admin, password, self.admin_database, self.cacertfile)

    def outside_address(self, user: str, password: str, database: str) -> str:
        """Return the address of a user for this machine."""
        return self._address(self.database, user, password, database, self.cacertfile)

    def inside_address(self, user: str, password: str, database: str, *, in_pods: bool) -> str:
        """Return the address of a user for the pool's programs."""
        file = f"{FOLDER}/{AUTHORITY_FILE}" if in_pods and self.cacertfile else self.cacertfile
        return self._address(self.inside, user, password, database, file)

    @staticmethod
    def _address(place: str, user: str, password: str, database: str, cacertfile: str) -> str:
        split = urlsplit(place)
        options = [split.query] if split.query else []
        if cacertfile:
            options += ["sslmode=verify-full", f"sslrootcert={quote(cacertfile)}"]
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return (
            f"postgresql://{login}@{split.netloc}/{quote(database, safe='')}{'?' if options else ''}{'&'.join(options)}"
        )


#: Roles whose passwords can be rotated -> the field of `DatabaseNames` that is the user's name.
ROLES = {"jobs": "database", "jobs-owner": "owner"}


def user(names: DatabaseNames, role: str) -> str:
    """Return the name of the user of a role."""
    return str(getattr(names, ROLES[role]))
