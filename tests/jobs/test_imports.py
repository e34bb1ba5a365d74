"""A worker imports only what it needs: it starts with the first request of its key, which waits."""

from __future__ import annotations

import subprocess
import sys

from alembic.config import Config
from alembic.script import ScriptDirectory

from osrdyne_jobs.database import engines as database


def test_a_worker_imports_neither_alembic_nor_what_asyncio_needs_of_sqlalchemy() -> None:
    code = (
        "import sys; from osrdyne_jobs import JobWorker; print(*(name for name in sys.modules if name.count('.') < 2))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "sqlalchemy" in loaded
    assert {"alembic", "sqlalchemy.orm", "sqlalchemy.ext.asyncio"} & {*loaded} == set()


def test_the_newest_version_of_the_tables_is_the_one_that_alembic_would_make() -> None:
    config = Config()
    config.set_main_option("script_location", str(database.MIGRATIONS))
    assert database.newest_version() == ScriptDirectory.from_config(config).get_current_head()
