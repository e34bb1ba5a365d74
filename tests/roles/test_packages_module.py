"""The Ansible module osrdyne_packages, with real apt, dpkg and packages in a root directory of the test."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import steps
from testbed.plugins import run_module
from testbed.waiting import until

UNITS = "etc/systemd/system"
#: What the script `postinst` of a Debian package does with its service, with Debian's own tools.
POSTINST = """
    #!/bin/sh
    set -e
    deb-systemd-helper enable NAME.service >/dev/null
    deb-systemd-helper update-state NAME.service >/dev/null
    update-rc.d NAME defaults >/dev/null
    touch $DPKG_ROOT/NAME.begun
    while [ -e $DPKG_ROOT/wait ]; do sleep 0.02; done
    policy=$DPKG_ROOT/usr/sbin/policy-rc.d
    for service in NAME old; do
        if [ ! -x $policy ] || $policy $service.service restart; then touch $DPKG_ROOT/$service.started; fi
    done
"""


class Root:
    """A root directory with package sources. Environment variables have apt and dpkg use it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self._sources = directory / "root", directory / "sources"
        for folder in (
            *("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/apt/lists/partial"),
            *("var/cache/apt/archives/partial", "var/log/apt", "etc/apt/apt.conf.d", "usr/sbin"),
        ):
            (self.path / folder).mkdir(parents=True)
        (self.path / "var/lib/dpkg/status").touch()
        self._sources.mkdir()
        (self._sources / "Packages").touch()
        (self.path / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{self._sources} ./\n")
        settings = f"""
            Dir "{self.path}/";
            Dir::State::status "{self.path}/var/lib/dpkg/status";
            DPkg::Options {{ "--root={self.path}"; "--force-script-chrootless"; }};
            APT::Sandbox::User "root";
        """
        (directory / "apt.conf").write_text(settings)
        monkeypatch.setenv("APT_CONFIG", str(directory / "apt.conf"))
        monkeypatch.setenv("DPKG_ROOT", str(self.path))

    def offer(self, name: str, depends: str = "", conflicts: str = "") -> None:
        """Add a package to the sources: with a service, and an init script for machines without systemd."""
        tree = self._sources / "tree" / name
        unit = f"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nAlias={name}-too.service\n"
        control = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: a\n"
        for file, text in {
            f"usr/lib/systemd/system/{name}.service": unit,
            f"etc/init.d/{name}": f"### BEGIN INIT INFO\n# Provides: {name}\n# Default-Start: 2\n### END INIT INFO\n",
            "DEBIAN/control": control
            + (f"Depends: {depends}\n" if depends else "")
            + (f"Conflicts: {conflicts}\n" if conflicts else ""),
            "DEBIAN/postinst": textwrap.dedent(POSTINST).strip().replace("NAME", name) + "\n",
        }.items():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(text)
        (tree / "DEBIAN/postinst").chmod(0o755)
        archive = self._sources / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", str(tree), str(archive)], check=True, capture_output=True)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        with (self._sources / "Packages").open("a") as listed:
            fields = (tree / "DEBIAN/control").read_text()
            listed.write(f"{fields}Filename: ./{name}.deb\nSize: {archive.stat().st_size}\nSHA256: {digest}\n\n")

    def install_by_hand(self, name: str) -> None:
        """Install a package, as an administrator does it."""
        self.offer(name)
        for words in (["update"], ["install", "-y", name]):
            subprocess.run(["apt-get", *words], check=True, capture_output=True)

    def enabled(self) -> list[str]:
        """Return the links by which services start with the machine."""
        links = [link for link in (self.path / "etc").rglob("*") if link.is_symlink()]
        return sorted(str(link.relative_to(self.path / "etc")) for link in links if not link.name.startswith("K"))

    def started(self) -> list[str]:
        return sorted(path.stem for path in self.path.glob("*.started"))

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.path / "var/lib/osrdyne/packages.json").read_text())
        return state

    def settings(self) -> Path:
        return self.path / "etc/thing.conf"

    @property
    def policy(self) -> Path:
        return self.path / "usr/sbin/policy-rc.d"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    return Root(tmp_path, monkeypatch)


def install(*names: str, **arguments: Any) -> dict[str, Any]:
    """Run the module, and return its result."""
    return run_module("osrdyne_packages", {"name": list(names), **arguments})


def start_command(root: Root, *names: str) -> subprocess.Popen[str]:
    """Start the command, and return when the first package has begun to set itself up, and waits."""
    (root.path / "wait").touch()
    command = [sys.executable, str(steps.ROOT / "tools/system_packages.py"), f"--setting={root.settings()}=no", *names]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: list(root.path.glob("*.begun")), every=0.02, what="the set-up of the package")
    return process


def test_the_service_of_a_new_package_and_of_what_it_needs_neither_starts_nor_is_enabled(root: Root) -> None:
    root.offer("needed")
    root.offer("thing", depends="needed")

    first = install("thing")

    assert (first["changed"], sorted(first["installed"])) == (True, ["needed", "thing"])
    assert (root.enabled(), [service for service in root.started() if service != "old"]) == ([], [])
    assert not root.policy.exists()
    assert install("thing")["changed"] is False


def test_a_rehearsal_that_is_asked_to_reads_the_package_lists_and_installs_nothing(root: Root) -> None:
    root.offer("thing")

    assert install("thing", update=True, _ansible_check_mode=True)["installed"] == []

    listed = subprocess.run(["apt-cache", "policy", "thing"], check=True, capture_output=True, text=True).stdout
    assert "Installed: (none)\n  Candidate: 1\n" in listed


def test_the_services_of_packages_that_are_there_stay_enabled_and_may_start_again(root: Root) -> None:
    root.install_by_hand("old")
    root.offer("thing")
    before = root.enabled()
    assert "systemd/system/multi-user.target.wants/old.service" in before
    (root.path / "old.started").unlink()

    assert install("old", "thing")["installed"] == ["thing"]

    assert root.enabled() == before
    assert root.started() == ["old"]
    # Only what was missing counts as installed for osrdyne
    assert root.state() == {"installed": ["thing"], "unfinished": None}


def test_a_unit_of_the_administrator_stays_enabled_where_a_package_brings_one_of_that_name(root: Root) -> None:
    root.offer("thing")
    own = root.path / UNITS / "thing.service"
    (root.path / UNITS / "multi-user.target.wants").mkdir(parents=True)
    own.write_text("[Service]\nExecStart=/usr/local/bin/thing\n")
    (root.path / UNITS / "multi-user.target.wants/thing.service").symlink_to("/etc/systemd/system/thing.service")

    install("thing")

    assert root.enabled() == ["systemd/system/multi-user.target.wants/thing.service"]


def test_a_policy_of_the_administrator_stays(root: Root) -> None:
    root.offer("thing")
    root.policy.write_text("#!/bin/sh\nexit 104\n")
    root.policy.chmod(0o755)

    install("thing")

    assert root.policy.read_text() == "#!/bin/sh\nexit 104\n"
    assert root.enabled() == []


def test_a_rehearsal_says_what_is_missing_and_installs_nothing(root: Root) -> None:
    root.offer("thing")

    assert install("thing", _ansible_check_mode=True)["changed"] is True

    assert not (root.path / "var/lib/osrdyne").exists()
    assert not list(root.path.glob("*.begun"))


def test_packages_of_another_program_are_recorded_if_they_were_missing_and_dropped_once_gone(root: Root) -> None:
    root.install_by_hand("old")
    root.offer("thing")

    noted = install("old", "thing", "never", install=False)
    assert (noted["changed"], noted["recorded"]) == (False, [])
    for words in (["update"], ["install", "-y", "thing"]):
        subprocess.run(["apt-get", *words], check=True, capture_output=True)
    assert install(install=False)["recorded"] == ["thing"]
    assert root.state()["installed"] == ["thing"]

    subprocess.run(["dpkg", "--force-script-chrootless", "--purge", "thing"], check=True, capture_output=True)
    assert install(install=False)["recorded"] == []
    # And its service was left alone
    assert root.started() == ["old", "thing"]


def test_a_package_of_the_machine_is_never_removed_to_install_one_of_ours(root: Root) -> None:
    root.install_by_hand("theirs")
    root.offer("thing", conflicts="theirs")

    done = subprocess.run(
        [sys.executable, str(steps.ROOT / "tools/system_packages.py"), "thing"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode != 0
    assert "apt-get could not install thing" in done.stdout + done.stderr
    assert "theirs" in (root.path / "var/lib/dpkg/status").read_text()
    assert install(install=False)["recorded"] == []


def test_a_killed_installation_harms_no_other_and_the_next_call_finishes_it(root: Root) -> None:
    root.offer("thing")
    process = start_command(root, "thing")
    process.kill()
    process.communicate()
    # The policy that it left lets any other apt start services
    assert root.settings().exists()
    assert subprocess.run([root.policy, "thing.service", "start"], check=False).returncode == 0
    # Its apt goes on, and the next call waits for the end of it
    following = subprocess.Popen([sys.executable, str(steps.ROOT / "tools/system_packages.py")])
    # Not /proc/locks: where processes have numbers of their own, as in a container, it leaves out locks of the dead.
    where = Path(f"/proc/{following.pid}/wchan")
    until(lambda: following.poll() is not None or "lock_inode_wait" in where.read_text(), every=0.02)
    (root.path / "wait").unlink()

    assert following.wait() == 0

    assert "thing" not in root.started()
    assert root.enabled() == []
    assert not root.policy.exists()
    assert not root.settings().exists()
    assert root.state() == {"installed": ["thing"], "unfinished": None}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_it_to_end_does_not_end_it_halfway(root: Root, number: int) -> None:
    root.offer("thing")
    process = start_command(root, "thing")

    process.send_signal(number)
    (root.path / "wait").unlink()

    errors = process.communicate()[1]
    assert (process.returncode, errors) == (0, "osrdyne: apt installs thing\n")
    assert root.enabled() == []


def test_a_package_that_does_not_exist_is_named_and_not_recorded(root: Root) -> None:
    done = subprocess.run(
        [sys.executable, str(steps.ROOT / "tools/system_packages.py"), "--why=Redis", "no-such-package"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert "Redis: apt-get could not install no-such-package" in done.stdout
    assert not (root.path / "var/lib/osrdyne/packages.json").exists()
