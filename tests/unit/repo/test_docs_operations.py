"""The pages about operation show the metrics, states and log lines that the daemon really has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from osrdyne.metrics import Metrics
from osrdyne.status import view as status_view

PAGES = ("howto/operations", "howto/operations-broker", "reference/metrics")
#: A heading between two of them ends the last section of the first.
PAGE = "\n## ".join(Path(steps.ROOT, f"docs/{name}.md").read_text() for name in PAGES)
#: What the daemon stands on.
LIBRARIES = tuple(f"packages/{name}/" for name in ("protocol", "runtime", "pool", "amqp", "client", "worker"))
#: Every text of the daemon and of what it stands on, with strings that go over several lines as one.
SOURCES = re.sub(
    r'"\s*\n\s*f?"',
    "",
    "\n".join(
        Path(steps.ROOT, name).read_text()
        for name in steps.tracked(".py")
        if name.startswith(("daemon/osrdyne/", *LIBRARIES))
    ),
)
SOURCES += "".join(
    f"{what} cannot be used; {meanwhile or 'trying again'}, {what} can be used again "
    for what, meanwhile in re.findall(r'OutageLog\(\s*\w+,\s*"(.+?)"(?:,\s*meanwhile="(.+?)")?', SOURCES)
)


def section(heading: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {heading}\n")[1], flags=re.MULTILINE)[0]


def test_every_metric_is_explained_with_its_labels() -> None:
    shown = {
        row[0]: set(re.findall("`(.*?)`", row[1]))
        for row in re.findall(
            r"^\| `(osrdyne_\w+)` \|(.*?)\|", PAGE.split("# Metrics of the daemon\n")[1], re.MULTILINE
        )
    }

    ours = [var for var in vars(Metrics()).values() if hasattr(var, "describe") and hasattr(var, "_labelnames")]
    assert shown == {
        f"{family.name}_total" if family.type == "counter" else family.name: set(metric._labelnames)
        for metric in ours
        for family in metric.describe()
    }


def test_every_metric_that_the_page_names_exists() -> None:
    # Variables of the playbook are called alike
    named = {re.sub("_total$", "", name) for name in re.findall(r"(?<!-e )osrdyne_[a-z_]+", PAGE)}

    assert named == {family.name for family in Metrics().registry.collect()}


def test_every_state_of_a_key_that_needs_a_person_is_explained() -> None:
    shown = set(re.findall(r"^\| `(\w+)`", section("A key"), re.MULTILINE))

    assert shown == set(status_view.STATES) - {"idle"}


#: Texts of several words in code marks that are not commands: what the daemon says.
SAID = sorted(
    text
    for text in re.findall(r"`([^`\n]+)`", PAGE)
    if " " in text and not re.match(r"osrdyne |journalctl |systemctl |chronyc |rabbitmq", text)
)


@pytest.mark.parametrize("text", SAID)
def test_what_the_page_quotes_is_what_the_daemon_says(text: str) -> None:
    assert text in SOURCES
