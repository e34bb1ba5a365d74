"""Each command on jobs, where its PostgreSQL stands still: it ends in its time, and says for what it waited."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.postgres import Postgres
from tests.jobs.test_bounds import prepared, standing_still
from tests.unit.runtime.commands_on_peers import DATABASE, WAITS, Addresses, run_in_time, write_files

pytestmark = pytest.mark.full


async def test_each_command_on_a_database_that_stands_still_says_so_in_time(
    private_postgres: Postgres, tmp_path: Path
) -> None:
    prepared(private_postgres)
    names = ("user", "admin", "owner")
    database, admin, owner = (private_postgres.url("jobs", name, "secret").replace("+psycopg", "") for name in names)
    bound = "?connect_timeout=2"
    unused = "http://127.0.0.1:1"
    addresses = Addresses(unused, unused, database + bound, admin=admin + bound, owner=owner + bound)
    write_files(tmp_path, addresses)
    asked = {name: waits for name, waits in WAITS.items() if waits.peer == DATABASE}
    wrong = []
    with standing_still(private_postgres):
        for command, waits in asked.items():
            done = await run_in_time(command, tmp_path, addresses, waits.seconds)
            if done.code != waits.code or not re.search(waits.says, done.line):
                wrong.append((command, done))
    assert (len(asked), wrong) == (9, [])
