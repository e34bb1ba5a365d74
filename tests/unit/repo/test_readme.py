"""What README.md and docs/ have a reader type exists, and what they link to is there."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import steps
import tiers

PAGES = steps.tracked(".md")
FENCE = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: A link of Markdown: target, and title if it has one.
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)(?:\s+\"([^\"]*)\")?\)")


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


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them, and the anchors that it sets itself."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = [title.replace("`", "").strip().lower() for title in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)]
    set_by_hand = set(re.findall(r'<a id="([^"]+)">', prose))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles} | set_by_hand


def test_the_readme_shows_the_two_commands() -> None:
    shown = [command for page, command in commands() if page == "README.md"]

    assert {"make demo", "make test"} <= set(shown)


def test_every_make_target_in_the_pages_is_one_that_make_lists() -> None:
    listed = set(re.findall(r"^  make ([a-z-]+)", run("make", "help").stdout, re.MULTILINE))
    listed |= {f"test-{tier}" for tier in tiers.names()}
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
        "demo-jobs",
        "demo-relay",
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

    # docs/howto/ansible.md shows the text of this one.
    assert [name for name in named - {"pool.yml"} if not Path(steps.ROOT, name).is_file()] == []


def test_ansible_finds_the_playbook_and_its_roles_by_the_plain_name() -> None:
    assert "daemon : " in run("env", "LC_ALL=C.UTF-8", "ansible-playbook", "dev.yml", "--list-tasks").stdout


def test_the_scenario_of_molecule_is_where_the_page_says() -> None:
    [found] = re.findall(r"MOLECULE_GLOB='(.*?)'", Path(steps.ROOT, "docs/howto/testing.md").read_text())
    assert [str(file.relative_to(steps.ROOT)) for file in steps.ROOT.glob(found)] == [
        "playbooks/molecule/default/molecule.yml"
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_of_a_page_leads_somewhere(page: str) -> None:
    folder = Path(steps.ROOT, page).parent
    targets = [link.split("#")[0] for link, _ in LINK.findall(Path(steps.ROOT, page).read_text())]
    relative = [target for target in targets if target and not re.match(r"[a-z]+:", target)]

    assert [target for target in relative if not (folder / target).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_heading_of_a_page_names_one(page: str) -> None:
    links = [link.partition("#") for link, _ in LINK.findall(Path(steps.ROOT, page).read_text())]
    to_pages = [(path, anchor) for path, _, anchor in links if anchor and (path.endswith(".md") or not path)]
    here = Path(steps.ROOT, page)

    assert [
        f"{path}#{anchor}" for path, anchor in to_pages if anchor not in anchors(here.parent / path if path else here)
    ] == []


def test_each_guarantee_of_the_readme_names_a_test_that_shows_it() -> None:
    section = Path(steps.ROOT, "README.md").read_text().split("## Guarantees")[1].split("\n## ")[0]
    bullets = section.split("\n- ")[1:]
    links = [link for bullet in bullets for link in LINK.findall(bullet.split("\n\n")[0])]

    assert len(bullets) == len(links) == 5
    assert [test for path, test in links if f"def {test}(" not in Path(steps.ROOT, path).read_text()] == []


WRITTEN = Path(steps.ROOT, "daemon/osrdyne/commands/new_pool")


@pytest.mark.parametrize("name", ["worker.py", "client.py"])
def test_the_code_of_the_readme_is_what_osrdyne_new_writes(name: str) -> None:
    assert f"```python\n{(WRITTEN / name).read_text()}```" in Path(steps.ROOT, "README.md").read_text()


def test_the_settings_of_the_quickstart_are_what_osrdyne_new_writes() -> None:
    settings = (WRITTEN / "settings.toml").read_text()

    assert f"```toml\n{settings}```" in Path(steps.ROOT, "docs/start/quickstart.md").read_text()


def test_the_quickstart_has_four_commands_and_names_the_broker_once() -> None:
    section = Path(steps.ROOT, "README.md").read_text().split("## Quickstart")[1].split("\n## ")[0]
    shown = [re.sub(r"\s+#.*", "", line) for line in FENCE.findall(section)[0].splitlines()]
    of_the_page = [command for page, command in commands() if page == "docs/start/quickstart.md"]

    assert [line for line in of_the_page if not line.startswith(("rabbitmqctl", "osrdyne pool remove"))] == shown
    assert len(shown) == 4
    assert " ".join(shown).count("PASSWORD@") == 1


def test_the_quickstart_installs_every_package_that_its_programs_need() -> None:
    (installed,) = [rest[1:] for page, rest in words("pip") if page == "docs/start/quickstart.md"]
    paths = [path.partition("[")[0] for path in installed]
    projects = [tomllib.loads(Path(steps.ROOT, path, "pyproject.toml").read_text())["project"] for path in paths]
    names = {project["name"] for project in projects}
    needed = {
        Requirement(dependency).name
        for project in projects
        for dependency in project["dependencies"]
        if dependency.startswith("osrdyne")
    }

    assert needed | {"osrdyne", "osrdyne-worker"} <= names


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(Path(steps.ROOT, "README.md").read_text().splitlines()) <= 150
