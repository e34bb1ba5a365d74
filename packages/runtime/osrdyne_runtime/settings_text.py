"""Writes the text of a settings file: the one writer for infrastructure code and tests. `settings_file` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(document: Mapping[str, Any]) -> str:
    """Return a document as TOML: plain values first, tables after them, `None` left out."""
    return "\n".join(_table(document, ())).lstrip("\n") + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    present = {name: value for name, value in values.items() if value is not None}
    tables = {name: value for name, value in present.items() if isinstance(value, Mapping)}
    lines = [f"{_key(name)} = {_literal(value)}" for name, value in present.items() if name not in tables]
    for name, value in tables.items():
        lines += ["", f"[{'.'.join(map(_key, (*path, name)))}]", *_table(value, (*path, name))]
    return lines


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _literal(name)


def _literal(value: Any) -> str:
    """TOML writes texts, numbers and booleans as JSON does, except for one character."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
