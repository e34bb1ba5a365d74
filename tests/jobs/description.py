"""Makes the description of the jobs' API (OpenAPI 3.1) from its endpoints and models.

`python -m tests.jobs.description` writes it to where the server has it.
"""

from __future__ import annotations

import inspect
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

import steps
from osrdyne_jobs.http.api import ENDPOINTS
from osrdyne_jobs.http.endpoints import JobEndpoint
from osrdyne_jobs.http.problems import Problem

FILE = Path(steps.ROOT, "packages/jobs/osrdyne_jobs/http/static/openapi.json")
ABOUT = "List, show, create, redo, cancel and delete jobs. Times are those of the database's clock."
PROBLEMS = {
    401: "The token is missing or wrong.",
    404: "There is no such job.",
    409: "The state of the job forbids it.",
    422: "Something in the request is wrong; `field` names it.",
    503: "The database is away, slow, or has no tables.",
}
#: Those that not every endpoint has.
FORBIDS = {"show_job": (404,), **dict.fromkeys(("redo_job", "cancel_job", "delete_job"), (404, 409))}
Json = dict[str, Any]


def described() -> Json:
    types = [
        Problem,
        *(gives(endpoint) for endpoint in ENDPOINTS if gives(endpoint)),
        *(endpoint.takes for endpoint in ENDPOINTS if body(endpoint)),
    ]
    named = [(str(number), "serialization", TypeAdapter(kind)) for number, kind in enumerate(types)]
    shown, definitions = TypeAdapter.json_schemas(named, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    schemas = {kind: shown[str(number), "serialization"] for number, kind in enumerate(map(str, types))}
    paths: dict[str, Json] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(re.sub(r":[^}]+", "", endpoint.path), {})[endpoint.method.lower()] = operation(
            endpoint, schemas
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "osrdyne jobs", "description": ABOUT, "version": version("osrdyne-jobs")},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"HTTPBearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def gives(endpoint: JobEndpoint) -> Any:
    """The type of an answer's document, or None."""
    found = get_type_hints(endpoint.run)["return"]
    return None if found is type(None) else found


def body(endpoint: JobEndpoint) -> bool:
    """Whether what an endpoint takes is the body of a request."""
    return endpoint.method == "POST" and "{" not in endpoint.path


def operation(endpoint: JobEndpoint, schemas: Json) -> Json:
    def document(kind: Any) -> Json:
        return {"content": {"application/json": {"schema": schemas[str(kind)]}}}

    name, kind = endpoint.run.__name__, gives(endpoint)
    status = 201 if body(endpoint) else 200 if kind else 204
    answers = {str(status): {"description": "Successful Response", **(document(kind) if kind else {})}}
    for number in sorted({401, 422, 503, *FORBIDS.get(name, ())}):
        answers[str(number)] = {"description": PROBLEMS[number], **document(Problem)}
    made: Json = {
        "summary": name.replace("_", " ").title(),
        "description": inspect.getdoc(endpoint.run),
        "operationId": name,
        "security": [{"HTTPBearer": []}],
        "responses": answers,
    }
    if body(endpoint):
        made["requestBody"] = {"required": True, **document(endpoint.takes)}
    elif endpoint.takes is not None:
        made["parameters"] = parameters(endpoint)
    return made


def parameters(endpoint: JobEndpoint) -> list[Json]:
    assert endpoint.takes is not None
    whole = endpoint.takes.model_json_schema()
    made = []
    for name, schema in whole["properties"].items():
        if schema.get("default", 0) is None:
            del schema["default"]
        made.append(
            {
                "name": name,
                "in": "path" if "{" in endpoint.path else "query",
                "required": name in whole.get("required", ()),
                "schema": schema,
                **({"description": schema["description"]} if "description" in schema else {}),
            }
        )
    return made


if __name__ == "__main__":
    FILE.write_text(json.dumps(described(), indent=1, ensure_ascii=False) + "\n")
