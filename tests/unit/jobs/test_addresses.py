"""Addresses of the database: what is read of them, and that nothing of them is dropped in silence."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from osrdyne_jobs.database import addresses, bounds, postgresql
from osrdyne_jobs.database.engines import engine_for
from osrdyne_jobs.database.preparation import Address as Prepared
from osrdyne_jobs.errors import InvalidAddress, NotPrepared
from osrdyne_protocol.errors import SettingsError

PLACE = "u:secret@h/d"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_name_of_postgresql_is_taken(scheme: str) -> None:
    read = addresses.read(f"{scheme}://{PLACE}\n")
    assert read.parameters == {"user": "u", "password": "secret", "host": "h", "dbname": "d"}
    assert (read.is_postgresql, read.pooler) == (True, False)
    assert "secret" not in f"{read!r} {read.url}"
    assert Prepared.of(f"{scheme}://{PLACE}", "the owner").parameters == read.parameters


def test_several_hosts_are_those_of_libpq() -> None:
    read = addresses.read("postgresql://u:p@a:1,b:2,[::1]:3/d?target_session_attrs=read-write")
    assert (read.parameters["host"], read.parameters["port"], read.hosts) == ("a,b,::1", "1,2,3", 3)
    assert read.parameters["target_session_attrs"] == "read-write"


def test_all_that_an_address_says_reaches_the_connection_behind_what_is_ours() -> None:
    given = "options=-csearch_path%3Dmine&keepalives_idle=3&connect_timeout=4&sslmode=require&application_name=x"
    made = postgresql.connecting(addresses.read(f"postgresql://{PLACE}?{given}"))
    assert made["options"].endswith(" -csearch_path=mine")
    assert "idle_in_transaction_session_timeout=60000" in made["options"]
    assert (made["keepalives_idle"], made["connect_timeout"], made["sslmode"]) == ("3", "4", "require")
    assert (made["application_name"], made["keepalives_count"]) == ("x", 3)


def test_a_pooler_gets_no_options_and_no_prepared_statements() -> None:
    made = postgresql.connecting(addresses.read(f"postgresql://{PLACE}?pooler=true&sslmode=require"))
    assert (made.get("options"), made["prepare_threshold"], made["sslmode"]) == (None, None, "require")
    assert "pooler" not in made
    assert "prepare_threshold" not in postgresql.connecting(addresses.read(f"postgresql://{PLACE}?pooler=false"))


def test_a_connection_opens_within_what_is_left_of_a_call_shared_by_its_hosts() -> None:
    read = addresses.read("postgresql://u:p@a,b/d?connect_timeout=0")
    with bounds.within(10.5), bounds.within(3600):
        assert postgresql.connecting(read)["connect_timeout"] == 6
    with bounds.within(0.1):
        assert postgresql.connecting(read)["connect_timeout"] == 2


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (f"postgresql://{PLACE}?conect_timeout=3", "has a parameter, number 1 behind"),
        (f"postgresql://{PLACE}?prepare_threshold=0", "has a parameter, number 1 behind"),
        (f"postgresql://{PLACE}?host=a&host=b", "has host 2 times"),
        (f"postgresql://{PLACE}?sslmode", "has sslmode without a value"),
        (f"postgresql://{PLACE}?pooler=maybe", "pooler in the database's address is true or false"),
        (f"postgresql://{PLACE}?connect_timeout=soon", "connect_timeout in the database's address is a whole number"),
        ("postgresql://u:sec?ret@h/d", "in a password write & as %26 and . as %3F"),
        ("postgresql://u:secret@[::1/d", "cannot be read"),
        ("postgresql://u:a@sec:ret@h/d", "cannot be read"),
        ("postgresql://u:a/sec@h/d", "cannot be read"),
        ("postgresql://u:1/sec@h/d", "cannot be read"),
        ("postgresql://u:secret@h:port/d", "cannot be read"),
        ("postgresql+asyncpg://u:secret@h/d", "names a driver"),
        ("mysql://u:secret@h/d", "not in mysql"),
        ("u:secret@h/d", "not a URL"),
        ("", "not a URL"),
        (
            "sqlite:////x/jobs.db?mode=ro",
            "has a parameter, number 1 behind the ., that is unknown here .there are none",
        ),
    ],
)
def test_what_cannot_be_used_is_named_without_the_password(address: str, why: str) -> None:
    with pytest.raises(InvalidAddress, match=why) as refused:
        addresses.read(address)
    assert "sec" not in str(refused.value).replace("second", "")


def test_a_server_is_not_prepared_through_a_pooler() -> None:
    with pytest.raises(NotPrepared, match="the owner is that of a pooler"):
        Prepared.of(f"postgresql://{PLACE}?pooler=true", "the owner")


@pytest.mark.parametrize("error", [SettingsError("database_file", "does not exist"), KeyError("secret")])
def test_an_address_that_cannot_be_read_again_is_an_outage_and_no_line_for_each_connection(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    reads = iter(["postgresql://jobs:secret@127.0.0.1:1/jobs"])

    def address() -> str:
        for read in reads:
            return read
        raise error

    engine = engine_for(address)
    for _ in range(5):
        with pytest.raises(OperationalError):
            engine.connect()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the database's address cannot be used; the last one that was read counts reason=")
    assert "secret" not in line
