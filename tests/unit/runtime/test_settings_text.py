"""What writes settings files writes TOML that says the same."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from osrdyne_runtime.settings_text import to_toml

#: Without halves of surrogate pairs, which UTF-8 cannot write.
TEXT = st.text(max_size=12)
PLAIN = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=8
)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_every_document_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(document)) == document


def test_a_value_that_is_none_is_left_out() -> None:
    assert to_toml({"status": {"host": None, "port": 1}, "pool": {"name": "core"}}) == (
        '[status]\nport = 1\n\n[pool]\nname = "core"\n'
    )
