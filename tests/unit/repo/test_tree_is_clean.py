"""Nothing in the tree belongs to one machine, one registry or one person."""

import re
from pathlib import Path

import pytest

import steps

#: No pattern matches its own text: each has an escape or a group where a match has a character.
REGISTRIES = (
    r"pypi\.org",
    r"pythonhosted\.org",
    r"registry\.npmjs",
    r"(?:proxy|sum)\.golang\.org",
    r"crates\.io",
    r"repo1?\.maven",
    r"(?:deb|archive|security)\.(?:debian|ubuntu)\.(?:org|com)",
    r"(?:ghcr|quay|docker)\.io/",
)
MACHINE = (r"(?<![\w./~-])/(?:root|work|opt/wheels)/\w", r"/home/\w+/", r"\.py(?:env)/")
SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE\sKEY",
    # user:password@host, unless the password is a placeholder or named as an example
    r"amqps?://[^\s:@/'\"]+:(?!guest@|secret@|password@|PASSWORD|[.*]{3}|[<{$%])[^\s@'\"/]+@",
    # password = "..." likewise; `worker_secret` is the name of an object
    r"(?i:\b(?!worker_secret\b)[\w-]*(?:password|secret|token)\s*[:=]\s*['\"])(?!secret|guest|wrong|[<{$%])[^'\"\s{]{6,}['\"]",
)
#: Tests are full of made-up passwords, some of which must look real: secrets are looked for everywhere else.
FORBIDDEN = {"registry address": REGISTRIES, "path of one machine": MACHINE, "secret": SECRETS}


def lines() -> list[tuple[str, int, str]]:
    """Every line of the project's text files: file, number, text."""
    found = []
    for name in steps.tracked():
        content = Path(steps.ROOT, name).read_bytes()
        if b"\0" not in content:
            text = content.decode(errors="replace")
            found += [(name, number, line) for number, line in enumerate(text.splitlines(), start=1)]
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_tree_holds_no(what: str) -> None:
    pattern = re.compile("|".join(FORBIDDEN[what]))

    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, number, line in lines()
        if pattern.search(line) and not (what == "secret" and name.startswith(("tests/", "lab/testbed/")))
    ]

    assert found == []


@pytest.mark.parametrize(
    ("what", "example"),
    [
        ("registry address", "index-url = https://pypi." + "org/simple"),
        ("path of one machine", "cd /root" + "/osrdyne"),
        ("secret", "amqp://admin:" + "hunter2@broker/prod"),
        ("secret", "pass" + 'word = "correct-horse"'),
        ("secret", "-----BEGIN RSA PRIVATE " + "KEY-----"),
    ],
)
def test_such_a_line_would_be_found(what: str, example: str) -> None:
    assert re.search("|".join(FORBIDDEN[what]), example)


def test_work_to_do_is_an_issue_and_not_a_comment() -> None:
    marks = re.compile(r"\b(?:TO(?:DO)|FIX(?:ME))\b")

    assert [f"{name}:{number}" for name, number, line in lines() if marks.search(line)] == []
