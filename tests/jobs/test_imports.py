"""A worker imports only what it needs: it starts with the first request of its key, which waits."""

from __future__ import annotations

import subprocess
import sys

import pytest
from alembic.script import ScriptDirectory

from osrdyne_jobs.database import engines as database


def test_a_worker_imports_neither_alembic_nor_what_asyncio_needs_of_sqlalchemy() -> None:
    code = (
        "import sys; from osrdyne_jobs import JobWorker; print(*(name for name in sys.modules if name.count('.') < 2))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "sqlalchemy" in loaded
    assert {"alembic", "sqlalchemy.orm", "sqlalchemy.ext.asyncio"} & {*loaded} == set()


@pytest.mark.parametrize("chain", [database.VERSIONS, database.ADDITIONS], ids=lambda chain: chain.folder)
def test_the_newest_version_of_the_tables_is_the_one_that_alembic_would_make(chain: database.Chain) -> None:
    scripts = ScriptDirectory(str(database.MIGRATIONS), version_locations=[str(database.MIGRATIONS / chain.folder)])
    assert chain.revisions()[-1] == scripts.get_current_head()


def test_no_revision_is_in_both_chains_of_migrations() -> None:
    assert {*database.VERSIONS.revisions()} & {*database.ADDITIONS.revisions()} == set()
