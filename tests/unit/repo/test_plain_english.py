"""The pages that newcomers read first, and all code, are in plain English: no words and no shapes that puzzle readers.

The sentences of the pages are short, too.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import steps

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *(name for name in steps.tracked(".md") if name.startswith("docs/") and not name.startswith("docs/decisions/")),
    "daemon/README.md",
    "infra/README.md",
    "packages/amqp/README.md",
    "packages/pipeline/README.md",
    "packages/calls/README.md",
    "packages/client/README.md",
    "packages/protocol/README.md",
    "packages/runtime/README.md",
    "packages/command/README.md",
    "packages/pool/README.md",
    "packages/worker/README.md",
    "packages/jobs/README.md",
    "packages/relay/README.md",
    "packages/bus/README.md",
    "roles/daemon/README.md",
    "roles/rabbitmq/README.md",
    "roles/topology/README.md",
)
#: Words a sentence.
MOST = 25
#: Words and phrases of the project's own dialect, which readers stumbled over.
DIALECT = re.compile(r"\b(nobody|somebody|anew|(is|are|was|were) told)\b|(?:^|[.!?] )(Who|Whoever) ", re.IGNORECASE)
#: The same in code, where these words never have another sense.
CODE_DIALECT = re.compile(r"\b(nobody|somebody|anybody|everybody|whoever|whom|anew|tells?|told)\b", re.IGNORECASE)
#: The shape "is no X", where "is not an X" is plain. Comparisons such as "is no longer" are plain.
IS_NO = re.compile(
    r"\b(?:is|are|was|were|be|being)\s+no\s+"
    r"(?!(?:longer|more|less|later|earlier|larger|smaller|shorter|higher|lower|greater)\b)",
    re.IGNORECASE,
)
#: All folders with Python files.
FOLDERS = sorted({name.split("/")[0] for name in steps.tracked(".py") if "/" in name})
#: Tokens that people read. From Python 3.12 the texts of an f-string are tokens of their own.
READ = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def prose(text: str) -> str:
    """A page without code, tables, headings, pictures and the targets of links."""
    text = re.sub(r"^[ ]*```.*?^[ ]*```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:\||#).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"!\[.*?\]\(.*?\)", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "x", text)


def sentences(text: str) -> list[str]:
    """The sentences of a page. A list item begins a new one, and a blank line or a colon ends one."""
    found = []
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", f"\n{prose(text)}"):
        joined = " ".join(paragraph.split()).replace("**", "")
        found += [sentence for sentence in re.split(r"(?<=[.!?;:])\s+", joined) if sentence]
    return found


def too_long(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(sentence.split()) > MOST]


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_has_more_than_25_words(page: str) -> None:
    assert too_long(Path(steps.ROOT, page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_speaks_the_dialect(page: str) -> None:
    text = prose(Path(steps.ROOT, page).read_text())

    assert [found[0] for found in DIALECT.finditer(" ".join(text.split()))] == []
    assert list(is_no(text)) == []


def test_a_long_sentence_is_found_wherever_its_lines_break() -> None:
    long = "word " * 13 + "\n" + "word " * 13 + "."

    assert len(too_long(f"Short one. {long}")) == 1
    assert too_long(f"```sh\n{long}\n```\n| {long.replace(chr(10), ' ')} |\n[short]({'a' * 300})") == []


def is_no(text: str) -> Iterator[re.Match[str]]:
    """The places where a text says "is no X". "There is no X" is plain."""
    return (found for found in IS_NO.finditer(text) if not text[: found.start()].rstrip().lower().endswith("there"))


def quoted_out(text: str) -> str:
    """A text in which each name in backquotes is as many x."""
    return re.sub("`[^`\n]*`", lambda quoted: "x" * len(quoted[0]), text)


def read_text_of(token: tokenize.TokenInfo) -> str:
    """The text of a token that people read: without names in backquotes, and without data such as `"nobody"`."""
    if token.type not in READ or (token.type == tokenize.STRING and not re.search(r"\s", token.string)):
        return ""
    return quoted_out(token.string)


def dialect(source: str, find: Callable[[str], Iterator[re.Match[str]]] = CODE_DIALECT.finditer) -> list[str]:
    """Dialect in the comments, docstrings and strings of Python code, each with its line number."""
    if not any(find(source)):
        return []  # to tell its tokens apart takes a hundred times as long
    return [
        f"{token.start[0] + token.string[: found.start()].count(chr(10))}: {' '.join(found[0].split())}"
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        for found in find(read_text_of(token))
    ]


def code_in(folder: str) -> list[str]:
    """The Python files of a folder, but this one and test_plain_names.py, which name the words."""
    return [name for name in steps.tracked(".py") if name.startswith(f"{folder}/") and "/test_plain_" not in name]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_comment_docstring_or_string_speaks_the_dialect(folder: str) -> None:
    files = code_in(folder)

    assert files
    assert [f"{name}:{found}" for name in files for found in dialect(Path(steps.ROOT, name).read_text())] == []


def test_no_other_file_speaks_the_dialect() -> None:
    """Playbooks, roles, templates, settings and Go code. The prose of pages has a check of its own, above."""
    names = [
        name
        for name in steps.tracked()
        if not name.endswith((".py", ".md", ".lock", ".svg", ".png")) and not name.endswith("LICENSE")
    ]
    found = {
        name: CODE_DIALECT.findall(quoted_out(Path(steps.ROOT, name).read_text(errors="replace"))) for name in names
    }

    assert len(names) > 150
    assert {name: words for name, words in found.items() if words} == {}


def test_no_name_of_a_test_speaks_the_dialect() -> None:
    names = {
        name: re.findall(r"def (test_\w+)", Path(steps.ROOT, name).read_text())
        for name in code_in("tests")
        if Path(name).name.startswith("test_")
    }

    assert sum(map(len, names.values())) > 2500
    assert [
        f"{name}: {test}"
        for name, tests in names.items()
        for test in tests
        if CODE_DIALECT.search(test.replace("_", " "))
    ] == []


def test_dialect_is_found_in_texts_but_not_in_names() -> None:
    code = 'def tell(key: str) -> str:\n    """One.\n\n    Nobody knows."""\n    return f"{key} anew"  # told\n'

    assert dialect(code) == ["4: Nobody", "5: anew", "5: told"]


def test_names_in_backquotes_and_texts_of_one_word_are_data() -> None:
    assert dialect('user = "nobody"  # as `nobody`\nimage = "nobody/has:this"\n') == []
    assert dialect('line = "for nobody"\n') == ["1: nobody"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_says_is_not_an_x_and_never_is_no_x_names_of_tests_included(folder: str) -> None:
    found = []
    for name in code_in(folder):
        source = Path(steps.ROOT, name).read_text()
        tests = re.findall(r"def (test_\w+)", source)
        found += [f"{name}:{shape}" for shape in dialect(source, is_no)]
        found += [f"{name}: {test}" for test in tests if list(is_no(test.replace("_", " ")))]

    assert found == []


@pytest.mark.parametrize("text", ["it is no\n    duration", "what ARE no durations", "being no table"])
def test_the_shape_is_no_x_is_found_over_the_end_of_a_line(text: str) -> None:
    assert dialect(f'"""{text}"""', is_no)


@pytest.mark.parametrize("text", ["There is no\n    duration", "it is no longer there", "is not a table", "is none"])
def test_plain_sentences_with_no_are_not_found(text: str) -> None:
    assert dialect(f'"""{text}"""', is_no) == []
