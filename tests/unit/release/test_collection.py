"""The Ansible collection, built and installed into an empty folder, beside nothing but ansible-core."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import collection
import steps
from testbed.distributions import Environment, Wheels

PAGE = Path(steps.ROOT, "docs/howto/ansible.md")
#: What a user of the roles needs; and what ansible-galaxy adds.
HELD = {"CHANGELOG.md", "LICENSE", "README.md", "daemon", "meta", "packages", "plugins", "requirements.lock", "roles"}
ADDED = {"FILES.json", "MANIFEST.json"}
#: It shows the topology of a pool, and ends at a filter of the role, which finds that the administrator cannot log in.
ONE_ROLE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ {'name': 'core'} | osrdyne.pool.osrdyne_requests('v') }}"
    - ansible.builtin.import_role: {name: osrdyne.pool.rabbitmq, tasks_from: named}
      vars:
        rabbitmq_uri: amqp://ad%3Amin:word@127.0.0.1:1/trains
        rabbitmq_why: it is named
"""


@dataclass(frozen=True)
class Control:
    """A control node: an environment with ansible-core, and the folder that it has for itself."""

    made: Environment

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of Ansible's programs."""
        home = str(self.made.place / "home")
        variables = {"ANSIBLE_HOME": home, "HOME": home, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}
        return self.made.run("python", "-m", "ansible", program, *words, **variables)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collection.build(steps.ROOT, tmp_path_factory.mktemp("built"), 1_700_000_000)


@pytest.fixture(scope="module")
def control(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Control:
    """A control node with the collection."""
    made = Wheels({}).install("ansible-core", tmp_path_factory.mktemp("control"))
    assert made.run("python", "-c", "import osrdyne_pool").returncode, "nothing of ours is installed beside Ansible"
    found = Control(made)
    done = found.run("galaxy", "collection", "install", str(file))
    assert done.returncode == 0, done
    return found


def test_the_collection_holds_what_its_roles_need_and_no_more(file: Path) -> None:
    with tarfile.open(file) as archive:
        names = archive.getnames()

    assert {name.partition("/")[0] for name in names} == HELD | ADDED
    assert not [name for name in names if re.search(r"packages/bus|__pycache__|egg-info", name)]
    assert not [name for name in names if Path(name).name.startswith(".")]
    # All members are in a fixed order: how a folder is listed differs from one machine to the next.
    assert names == sorted(names)


def kept() -> set[str]:
    """Return the files that commands of pages write or read in the folder of a checkout."""
    pages = [*Path(steps.ROOT, "docs").glob("howto/pulumi*.md"), Path(steps.ROOT, "docs/reference/pulumi.md")]
    text = "".join(page.read_text() for page in [*pages, Path(steps.ROOT, "docs/upgrading.md")])
    return set(re.findall(r"(?:[<>]|--file|hand_over|adopt --stack dev) ([a-z][\w./]+)", text)) - {"credentials"}


def test_what_pages_have_a_person_keep_in_a_checkout_is_not_of_the_repository() -> None:
    assert {"admin.password", "before.json", "adopt.json", "credentials/core/settings.toml"} <= kept()
    command = ["git", "check-ignore", "--no-index", *kept()]
    done = subprocess.run(command, cwd=steps.ROOT, capture_output=True, text=True, check=False)
    assert set(done.stdout.splitlines()) == kept()


def test_what_a_person_keeps_in_a_checkout_does_not_get_into_the_collection(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("galaxy.yml", "README.md"):
        shutil.copy(Path(steps.ROOT, name), tree)
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "my-notes.uri", "pool.retry", ".env", *kept()):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("hidden\n")

    with tarfile.open(collection.build(tree, tmp_path / "built", 1_700_000_000)) as archive:
        assert set(archive.getnames()) == {"README.md", *ADDED}


def play(control: Control, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (control.made.place / "play.yml").write_text(text)
    return control.run("playbook", "play.yml", "-c", "local", *words)


def test_the_playbook_of_the_page_has_five_lines_and_finds_all_of_its_roles(control: Control) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)

    assert len(text.splitlines()) == 5
    done = play(control, text, "--syntax-check")
    assert done.returncode == 0, done
    listed = play(control, text, "--list-tasks").stdout
    assert "osrdyne.pool.daemon : Write the settings" in listed
    # Modules are looked for when a task is loaded, and filters when it runs.
    done = play(control, ONE_ROLE)
    assert "core-req-xchg" in done.stdout, done
    assert "holds a colon" in done.stdout, done


def test_ansible_shows_each_module_of_the_collection(control: Control) -> None:
    modules = {f"osrdyne.pool.{path.stem}" for path in Path(steps.ROOT, "plugins/modules").glob("*.py")}

    shown = json.loads(control.run("doc", "--json", *modules).stdout)

    assert shown.keys() == modules


def test_the_page_takes_at_most_four_commands() -> None:
    [first] = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(first.splitlines()) <= 4
