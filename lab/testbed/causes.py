"""The page of causes, docs/reference/causes.md, as tests read it: what broke, and the words that each asker gets.

A row of a page's table of causes is a `Cause`. Its words are patterns: a word in braces stands for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from testbed import ROOT

PAGE = ROOT / "docs" / "reference" / "causes.md"

#: Who asks, as the page names them, and what the table of causes itself says.
PYTHON, COMMAND, STATUS = "caller in Python", "`osrdyne call`", "`osrdyne status --key`"
POISON, EVENTS, METRICS, JOBS = "`osrdyne poison show`", "events", "metrics", "jobs' page"
REPORT = "report"
BROKE, HOW, REASON, TO_DO = "what broke", "how", "reason", "what to do"

_CODE = re.compile(r"(`+)(.+?)\1(?!`)")
_PLACEHOLDER = re.compile(r"\\\{(\w+)\\\}")
_STATUS = re.compile(r" \d+\"")
#: What differs from one end of a worker to the next: seconds, process ids, and ids of requests.
_NUMBERS = re.compile(r"[0-9a-f]{16}-\d{4}-\d{8}|\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Cause:
    """One thing that broke. `words` has, for each asker, what is to be found; each is a list of alternatives."""

    title: str
    section: str
    words: dict[str, list[list[str]]]
    reason: str = ""

    def patterns(self, asker: str) -> list[re.Pattern[str]]:
        """Return a pattern for each line that an asker is to get; none where the page says that it is nothing."""
        return [re.compile("|".join(f"(?:{_pattern(word)})" for word in words)) for words in self.words.get(asker, [])]

    def missing(self, asker: str, lines: list[str]) -> list[str]:
        """Return the patterns of an asker that no line is."""
        return [
            pattern.pattern for pattern in self.patterns(asker) if not any(pattern.fullmatch(line) for line in lines)
        ]


def causes() -> dict[str, Cause]:
    """Return all causes of the page by what broke."""
    return {cause.title: cause for cause in _causes(PAGE.read_text())}


def _causes(text: str) -> Iterator[Cause]:
    for part in text.split("\n## ")[1:]:
        section, _, body = part.partition("\n")
        frames: dict[str, list[list[str]]] = {}
        for header, *rows in _tables(body):
            for row in rows:
                cells = dict(zip(header, row, strict=True))
                if BROKE not in cells:
                    frames.setdefault(row[0], []).append(_spans(row[1]))
                    continue
                own = {name: [_spans(cell)] for name, cell in cells.items() if name not in (BROKE, HOW, REASON, TO_DO)}
                filled = {name: "".join(_spans(cells.get(name, ""))) for name in (HOW, REASON)}
                words = {
                    asker: [[_filled(span, filled) for span in spans] for spans in lines if spans]
                    for asker, lines in (frames | own).items()
                }
                # All series are to be there, and their label has no exit status.
                words[METRICS] = [[_STATUS.sub('"', span)] for spans in words.get(METRICS, []) for span in spans]
                yield Cause(cells[BROKE], section, words, filled[REASON])


def _filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value) if value else text
    return text


def _tables(text: str) -> Iterator[list[list[str]]]:
    for block in re.split(r"\n(?!\|)", text):
        rows = [line.strip().strip("|").split(" | ") for line in block.splitlines() if line.startswith("|")]
        if len(rows) > 2:
            yield [[cell.strip() for cell in row] for row in (rows[0], *rows[2:])]


def _spans(cell: str) -> list[str]:
    if cell.startswith("nothing"):
        return []
    return [found[2].strip() for found in _CODE.finditer(cell)]


def _pattern(words: str) -> str:
    return _PLACEHOLDER.sub(".*?", re.escape(words))


def masked(text: str) -> str:
    """Return a text without what differs from one end of a worker to the next."""
    return _NUMBERS.sub("N", " ".join(text.split()))
