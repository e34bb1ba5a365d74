"""Draws examples from a seed, and has what every kind of attack uses: sizes around limits, depths, names. Pure."""

from __future__ import annotations

import string
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

Drawn = TypeVar("Drawn")

#: Sizes in bytes at which some program changes what it does.
LIMITS = {
    "a length with a sign, in one byte": 127,
    "a length in one byte": 255,
    "tables and arrays within headers that are read": 4096,
    "a batch of events": 64_000,
    "a length in two bytes": 65_535,
    "the payload of a frame, as RabbitMQ agrees to it": 131_072 - 8,
    "a frame": 131_072,
    "headers that are read": 2 * 131_072,
}
#: Most fields of headers, and most levels of tables and arrays within each other, that our reader reads. A test
#: compares these and `LIMITS` with its own.
MOST_FIELDS, MOST_DEPTH = 1000, 32


def around(*limits: int) -> st.SearchStrategy[int]:
    """Return a strategy for each limit, one less and one more."""
    return st.sampled_from([limit + more for limit in limits for more in (-1, 0, 1)])


#: In half of all cases a limit or what is next to it.
SIZES = around(*LIMITS.values()) | st.sampled_from([0, 1, 100, 10_000, 200_000])
#: How deep values are nested, beside what a recursive strategy gives.
DEPTHS = around(MOST_DEPTH) | st.sampled_from([1, 2, 16, 100, 1000])
#: Names of keys, queues and endpoints: ours, nearly ours, and those that some program could stumble over.
NAMES = st.sampled_from(
    [
        *("", "0", "42", "42 ", "xchg", "leader", "core-orphan", "core-dlq", "core-req-42", "amq.rabbitmq.reply-to"),
        *("a\nb", "a\rb", "a\0b", "..", "../../etc/passwd", "50%", "%00", "%ff", "{e}", "$(id)", "'", '"', "<b>", "\\"),
        *("é", "e\u0301", "\u202e42", "\ufeff", "\U0001f4a3", "~x", "A", "k" * 127, "k" * 255, "é" * 127),
    ]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
#: Text of one character, in the sizes above.
LONG_TEXTS = SIZES.map(lambda size: "v" * size)
HEADER_TEXTS = st.text(string.printable, max_size=60)


class Repeatable(HypothesisProvider):
    """Draws the same in every process. Hypothesis's own provider also draws constants of the imported modules."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


AVAILABLE_PROVIDERS["repeatable"] = f"{__name__}.Repeatable"


def drawn(strategy: st.SearchStrategy[Drawn], first: int, count: int) -> list[Drawn]:
    """Return `count` different examples of a strategy, the same at each call with the same first seed."""
    made: list[Drawn] = []

    @seed(first)
    @settings(
        database=None,
        backend="repeatable",
        deadline=None,
        phases=[Phase.generate],
        max_examples=count,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Drawn) -> None:
        made.append(example)

    collect()
    return made


def mutated(original: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy for these bytes with some of them replaced, removed or put in between."""

    def change(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(original)
        for at, length, replacement in edits:
            start = at % (len(data) + 1)
            data[start : start + length] = replacement
        return bytes(data)

    edit = st.tuples(st.integers(0, 10_000), st.integers(0, 8), st.binary(max_size=8))
    return st.lists(edit, max_size=6).map(change)
