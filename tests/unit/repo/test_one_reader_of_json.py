"""JSON that others wrote is read in one way: nothing of the product reads it by `json` itself."""

from __future__ import annotations

import ast
from pathlib import Path

import steps

FOLDERS = ("packages", "daemon", "infra", "examples")
READER = "packages/protocol/osrdyne_protocol/foreign_json.py"
#: What osrdyne wrote itself, and where from.
OWN = {
    "examples/airports/flights.py": "the data set of the examples",
    "examples/airports/pipeline_demo.py": "what a command of ours printed",
    "examples/airports/relay_demo.py": "an answer that was made in this process",
    "infra/osrdyne_infra/mend.py": "properties in Pulumi's state",
    "packages/jobs/osrdyne_jobs/documents.py": "a payload that was checked when its job was registered",
    "packages/jobs/osrdyne_jobs/http/api.py": "a payload that was checked when its job was registered",
    "packages/pipeline/osrdyne_pipeline/batches.py": "notes of ingest in the lake",
    "packages/pipeline/osrdyne_pipeline/slices.py": "the note of what tables were made of",
}


def reads_json(code: str) -> bool:
    """Whether a module names `json.load` or `json.loads`, under whatever name it imports `json`."""
    tree = ast.parse(code)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {name.asname or name.name for statement in imports for name in statement.names if name.name == "json"}
    taken = {
        name.name
        for statement in imports
        if isinstance(statement, ast.ImportFrom) and statement.module == "json"
        for name in statement.names
    }
    return bool(taken & {"load", "loads"}) or any(
        isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads")
        and isinstance(node.value, ast.Name)
        and node.value.id in named
        for node in ast.walk(tree)
    )


def test_a_reader_is_found_under_any_name() -> None:
    assert reads_json("import json as text\nfound = text.loads(b'')")
    assert reads_json("from json import load")
    assert not reads_json("import json, tomllib\njson.dumps(tomllib.loads(''))")


def test_only_what_osrdyne_wrote_is_read_by_json_itself() -> None:
    names = [name for name in steps.tracked(".py") if name.split("/")[0] in FOLDERS and name != READER]
    assert {name for name in names if reads_json(Path(steps.ROOT, name).read_text())} == set(OWN)
