"""The pages that lead to a first answer do so in at most four commands. Other tests type them."""

from __future__ import annotations

import re

import pytest

import steps

#: A page, and what is before and behind its commands.
PAGES = [
    # tests/broker/test_readme.py, and tests/release/test_quickstart.py with packages from an index
    ("docs/start/quickstart.md", "\n## 1. Install\n", "\n## Clean up\n"),
    # tests/release/test_compose.py
    ("docs/start/compose.md", "# Compose\n", "\n```text\n"),
    # tests/release/test_collection.py
    ("docs/howto/ansible.md", "\n## From an empty machine to the first answer\n", "\n## "),
    # tests/release/test_first_pulumi.py
    ("docs/howto/pulumi-components.md", "\n## From a cluster to the first answer\n", "\n## "),
]


@pytest.mark.parametrize(("page", "begin", "end"), PAGES)
def test_a_first_answer_takes_at_most_four_commands(page: str, begin: str, end: str) -> None:
    text = (steps.ROOT / page).read_text().partition(begin)[2].partition(end)[0]

    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]

    assert 3 <= len(commands) <= 4
