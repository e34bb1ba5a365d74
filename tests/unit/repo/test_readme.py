"""What README.md and docs/ tell a reader to type exists, and what they link to is there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import run_tests
import steps

PAGES = steps.tracked(".md")
FENCE = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def commands() -> list[tuple[str, str]]:
    """Every command line in a fenced `sh` block, with its page; continued lines are one, comments none."""
    found = []
    for page in PAGES:
        for block in FENCE.findall(Path(steps.ROOT, page).read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"(^|\s)#.*", "", line).removeprefix("$ ").strip()
                found += [(page, command)] if command else []
    return found


def split(command: str) -> list[str]:
    """The words of a command as a shell splits them; at blanks where a quotation goes on in the next line."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def words(program: str) -> list[tuple[str, list[str]]]:
    """The calls of a program in the pages, with the words that follow its name."""
    calls = []
    for page, command in commands():
        parts = [part for part in split(command) if not re.match(r"[A-Z_]+=", part)]
        if parts and parts[0].rpartition("/")[2] == program:
            calls.append((page, parts[1:]))
    return calls


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a cheap command in the root of the project, as a reader would."""
    return subprocess.run(
        command,
        cwd=steps.ROOT,
        env=steps.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_readme_shows_the_two_commands() -> None:
    shown = [command for page, command in commands() if page == "README.md"]

    assert {"make demo", "make test"} <= set(shown)


def test_every_make_target_in_the_pages_is_one_that_make_lists() -> None:
    listed = set(re.findall(r"^  make ([a-z-]+)", run("make", "help").stdout, re.MULTILINE))
    listed |= {f"test-{tier}" for tier in run_tests.tiers()}
    named = {target for _, targets in words("make") for target in targets if not target.startswith("-")}

    assert named
    assert named - listed == set()


def test_make_without_a_target_lists_every_target() -> None:
    makefile = Path(steps.ROOT, "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z%-]*):", makefile, re.MULTILINE))

    shown = set(re.findall(r"^  make (\S+)", run("make").stdout, re.MULTILINE))

    assert shown == {target.replace("%", "TIER") for target in targets}


def test_every_make_target_has_a_recipe_that_make_accepts() -> None:
    for target in (
        "setup",
        "demo",
        "up",
        "down",
        "test",
        "test-fast",
        "test-all",
        "engines",
        "test-drivers",
        "test-infra",
        "check",
        "format",
        "lock",
        "bench",
        "clean",
    ):
        done = run("make", "--dry-run", target)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", sorted({rest[0] for _, rest in words("osrdyne") if rest}))
def test_every_osrdyne_command_in_the_pages_exists(verb: str) -> None:
    done = run("osrdyne", verb, "--help")

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_playbook_in_the_pages_exists() -> None:
    named = {word for _, rest in words("ansible-playbook") for word in rest if word.endswith(".yml")}

    assert [name for name in named if not Path(steps.ROOT, name).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_of_a_page_leads_somewhere(page: str) -> None:
    folder = Path(steps.ROOT, page).parent
    targets = [link.split("#")[0] for link in LINK.findall(Path(steps.ROOT, page).read_text())]
    relative = [target for target in targets if target and not re.match(r"[a-z]+:", target)]

    assert [target for target in relative if not (folder / target).exists()] == []
