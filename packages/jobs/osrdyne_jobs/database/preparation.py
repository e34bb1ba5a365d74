"""Makes what the jobs of a pool have on a PostgreSQL server: a database, two roles, and their rights.

The owner makes and alters the tables. The role of clients, workers and redo may read and write rows, and no more. All
is idempotent: `prepare` makes two addresses work, and says what it changed. Passwords reach the server as SCRAM
verifiers, so that no log of its statements has them. `osrdyne jobs prepare-database` and the Pulumi program call this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from osrdyne_jobs.database import addresses
from osrdyne_jobs.errors import InvalidAddress, NotPrepared
from osrdyne_runtime.console.imports import extra

with extra("osrdyne-jobs[postgresql]"):
    import psycopg
    from psycopg import sql

#: The schema `public` belongs to the owner of the database since this version.
OLDEST = 15
#: Seconds until a server that does not answer counts as away.
CONNECT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address of PostgreSQL."""

    user: str
    database: str
    password: str = field(repr=False)
    #: All of it, for libpq.
    parameters: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, address: str, whose: str) -> Address:
        """Parse `postgresql://user:password@host:port/database`. Raises NotPrepared, whose text has no part of it."""
        try:
            read = addresses.read(address)
        except InvalidAddress as error:
            raise NotPrepared(f"the address of {whose}: {error}") from None
        if not read.is_postgresql:
            problem = "is none of PostgreSQL; write postgresql://user:password@host/database"
            raise NotPrepared(f"the address of {whose} {problem}")
        if read.pooler:
            raise NotPrepared(f"the address of {whose} is that of a pooler; name the server itself")
        found = read.parameters
        for part, name in (("user", "user"), ("dbname", "database")):
            if not found.get(part):
                raise NotPrepared(f"the address of {whose} names no {name}")
        return cls(str(found["user"]), str(found["dbname"]), str(found.get("password") or ""), found)

    @property
    def server(self) -> tuple[str, str]:
        return str(self.parameters.get("host", "")), str(self.parameters.get("port", "5432"))


def prepare(admin: str, owner: str, database: str) -> list[str]:
    """Make the addresses of the owner and of the programs work; return what was changed, a sentence each.

    `admin` is the address of a superuser, or of a role with CREATEDB and CREATEROLE, in any database. Two at once do no
    harm. Raises NotPrepared.
    """
    who, owns, uses = _checked(admin, owner, database)
    changed: list[str] = []
    with _errors(who), _connected(who) as server:
        # Until this connection ends. Others of the same administrator wait.
        server.execute("SELECT pg_advisory_lock(hashtext('osrdyne_jobs'))")
        _check_version(server)
        for address in (owns, uses):
            changed += _role(server, address)
        changed += _database(server, owns)
        for address in (owns, uses):
            changed += _password(server, address)
            if address is owns:
                with _errors(address), _connected(address) as own:
                    changed += _rights(own, uses)
    return changed


def roles_in_use(admin: str, *roles: str) -> list[str]:
    """Return those of the roles that exist and may log in. Raises NotPrepared."""
    who = Address.of(admin, "the administrator")
    with _errors(who), _connected(who) as server:
        found = server.execute("SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolname = ANY(%s)", [list(roles)])
        return sorted(name for (name,) in found.fetchall())


def retire(admin: str, *roles: str) -> None:
    """Let roles no longer log in. Their database stays, with its jobs. Raises NotPrepared."""
    who = Address.of(admin, "the administrator")
    with _errors(who):
        used = roles_in_use(admin, *roles)
        with _connected(who) as server:
            for role in used:
                server.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role)))


def _checked(admin: str, owner: str, database: str) -> tuple[Address, Address, Address]:
    who, owns, uses = (
        Address.of(address, whose)
        for address, whose in ((admin, "the administrator"), (owner, "the owner"), (database, "the programs"))
    )
    if (owns.server, owns.database) != (uses.server, uses.database):
        raise NotPrepared("the addresses of the owner and of the programs name two databases; name one")
    if len({who.user, owns.user, uses.user}) < 3:
        raise NotPrepared("administrator, owner and programs must be three users: each has other rights")
    for address, whose in ((owns, "the owner"), (uses, "the programs")):
        if not address.password:
            raise NotPrepared(f"the address of {whose} has no password")
    return who, owns, uses


@contextmanager
def _connected(address: Address) -> Iterator[psycopg.Connection[Any]]:
    connection = psycopg.connect(**{"connect_timeout": CONNECT_SECONDS, **address.parameters}, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _errors(who: Address) -> Iterator[None]:
    """Word what the server refuses; its own text has no password."""
    try:
        yield
    except psycopg.Error as error:
        text = str(error).strip().partition("\n")[0]
        where = f"{who.parameters.get('host', 'localhost')}:{who.parameters.get('port', 5432)}"
        why = f"{text}{addresses.advice(text)}"
        raise NotPrepared(f"PostgreSQL at {where} cannot be used as user {who.user}: {why}") from None


def _check_version(server: psycopg.Connection[Any]) -> None:
    version = server.info.server_version // 10_000
    if version < OLDEST:
        raise NotPrepared(f"the server is PostgreSQL {version}; jobs need version {OLDEST} or later")


def _role(server: psycopg.Connection[Any], address: Address) -> list[str]:
    """Make a role. One with more rights than ours have was made by a person for something else."""
    found = server.execute(
        "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = %s", [address.user]
    ).fetchone()
    if found is not None:
        if found[0]:
            raise NotPrepared(f"role {address.user} is there, and may administer the server; name another user")
        return []
    server.execute(
        sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(address.user), _verifier(server, address))
    )
    return [f"role {address.user} was made"]


def _verifier(server: psycopg.Connection[Any], address: Address) -> sql.Literal:
    made = server.pgconn.encrypt_password(address.password.encode(), address.user.encode(), b"scram-sha-256")
    return sql.Literal(made.decode())


def _database(server: psycopg.Connection[Any], owns: Address) -> list[str]:
    found = server.execute(
        "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s", [owns.database]
    ).fetchone()
    if found is not None:
        if found[0] != owns.user:
            raise NotPrepared(
                f"database {owns.database} is there, and belongs to {found[0]}; name another database, or give it to "
                f'the owner: ALTER DATABASE "{owns.database}" OWNER TO "{owns.user}"'
            )
        return []
    owner = sql.Identifier(owns.user)
    if server.info.parameter_status("is_superuser") != "on":
        # Only a member of a role may make a database for it.
        server.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(owner))
    # Whatever the server's own encoding and locale are.
    statement = "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    server.execute(sql.SQL(statement).format(sql.Identifier(owns.database), owner))
    return [f"database {owns.database} was made"]


def _password(server: psycopg.Connection[Any], address: Address) -> list[str]:
    """Set the password where it is not that of the address, which shows only when it is tried."""
    try:
        with _connected(address):
            return []
    except psycopg.OperationalError:
        name = sql.Identifier(address.user)
        server.execute(sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, _verifier(server, address)))
    with _errors(address), _connected(address):
        return [f"the password of role {address.user} was set"]


#: Who may do what, before and after.
_SEEN = """
    SELECT 'd'::text, datacl::text FROM pg_database WHERE datname = current_database()
    UNION ALL SELECT 'n', nspacl::text FROM pg_namespace WHERE nspname = 'public'
    UNION ALL SELECT 'a', defaclobjtype::text || defaclacl::text FROM pg_default_acl
    UNION ALL SELECT relname::text, relacl::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
    ORDER BY 1, 2
"""
#: The first line takes PostgreSQL's default away: all users may connect, and make temporary tables.
_GRANTED = """
    REVOKE ALL ON DATABASE {database} FROM PUBLIC;
    GRANT CONNECT ON DATABASE {database} TO {programs};
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    GRANT USAGE ON SCHEMA public TO {programs};
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {programs};
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO {programs};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {programs};
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {programs}
"""


def _rights(own: psycopg.Connection[Any], uses: Address) -> list[str]:
    """Give the programs their rights, over a connection of the owner."""
    before = own.execute(_SEEN).fetchall()
    names = {"database": sql.Identifier(uses.database), "programs": sql.Identifier(uses.user)}
    for statement in _GRANTED.split(";"):
        own.execute(sql.SQL(statement.strip()).format(**names))
    after = own.execute(_SEEN).fetchall()
    return [] if before == after else [f"role {uses.user} got its rights on database {uses.database}"]
