"""Make `.venv` from requirements.lock, with our own packages installed editable.

Reads requirements.lock and the pyproject.toml of each package; writes `.venv` and, only where Python comes
without `ensurepip` (Debian and Ubuntu split it off), the system package python3-venv by apt. A stamp in
`.venv` holds the digest of what it was made from: while that is unchanged, this does nothing.

uv installs, because it takes seconds where pip takes a minute; pip brings uv, and does the work itself where
uv cannot (a machine whose package index is set up in a way that only pip understands).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Dict, List

import steps
import superuser
import system_packages
from steps import BIN, ROOT, VENV

LOCK = ROOT / "requirements.lock"
STAMP = VENV / ".osrdyne-setup"
#: The oldest Python that osrdyne runs on.
OLDEST = (3, 11)
#: Folders whose modules are not installed, and are found by every Python of `.venv`.
FOUND = ("lab", "tools")
#: Where Ansible finds the collection of this checkout (ansible.cfg), and of which parts it consists.
COLLECTION = VENV / "collections/ansible_collections/osrdyne/pool"
PARTS = ("galaxy.yml", "meta", "playbooks", "plugins", "roles")


def packages() -> List[Path]:
    """Our installable packages: each folder of the root and of packages/ that has a pyproject.toml."""
    return sorted(path.parent for depth in ("*", "packages/*") for path in ROOT.glob(f"{depth}/pyproject.toml"))


def digest() -> str:
    """What `.venv` depends on: the lock, the packages' metadata, this script and where it is."""
    summed = hashlib.sha256(f"{ROOT}\n".encode())
    for path in [LOCK, Path(__file__), *(package / "pyproject.toml" for package in packages())]:
        summed.update(path.read_bytes())
    return summed.hexdigest()


def is_up_to_date() -> bool:
    """True when `.venv` was made from what is here now, by any Python or by the one that the user names.

    `make setup PYTHON=...` puts that name into our environment; without it, a `.venv` keeps its Python.
    """
    if not STAMP.exists() or STAMP.read_text() != digest() or not (BIN / "python").exists() or not is_linked():
        return False
    return "PYTHON" not in os.environ or is_of_this_python()


def is_of_this_python() -> bool:
    """True when `.venv` exists and was made by the version of Python that runs this."""
    config = VENV / "pyvenv.cfg"
    return config.exists() and f"version = {sys.version.split()[0]}" in config.read_text().splitlines()


def has_ensurepip() -> bool:
    """True when this Python can make a virtual environment with pip in it."""
    probe = subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False)
    return probe.returncode == 0


def ensure_venv_module() -> None:
    """Install the system package that holds `ensurepip` where this Python came without it."""
    if has_ensurepip():
        return
    if not shutil.which("apt-get"):
        steps.stop(f"{sys.executable} has no ensurepip and there is no apt-get: install Python's venv module")
    rights = superuser.prefix("python3-venv is missing, and apt needs root to install it")
    install = system_packages.command("python3-venv", why="  this Python has no ensurepip")
    if subprocess.run([*rights, *install], check=False).returncode:
        steps.stop("python3-venv could not be installed")
    if not has_ensurepip():
        steps.stop(f"{sys.executable} still has no ensurepip; name another Python: make setup PYTHON=...")


def locked(name: str) -> str:
    """The lines of the lock that pin one package with its hashes."""
    taken: List[str] = []
    for line in LOCK.read_text().splitlines(keepends=True):
        if line.startswith(f"{name}==") or (taken and line.startswith("    --hash")):
            taken.append(line)
        elif taken:
            break
    if not taken:
        steps.stop(f"{LOCK.name} does not pin {name}: run make lock")
    return "".join(taken)


def pip_settings() -> Dict[str, str]:
    """Where pip fetches packages from, as uv's environment variables; uv does not read pip's own settings."""
    config_list = [str(BIN / "python"), "-m", "pip", "config", "list"]
    listing = subprocess.run(config_list, capture_output=True, text=True, check=False)
    found: Dict[str, str] = {}
    for line in listing.stdout.splitlines():
        name, _, value = line.partition("=")
        option = name.rsplit(".", 1)[-1]
        if option not in found or name.startswith(":env:"):
            found[option] = value.strip("'\"").replace("\\n", " ")
    env = {}
    if "index-url" in found:
        env["UV_DEFAULT_INDEX"] = found["index-url"]
    if "extra-index-url" in found:
        env["UV_INDEX"] = found["extra-index-url"]
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    if "cert" in found:
        env["SSL_CERT_FILE"] = found["cert"]
    elif "SSL_CERT_FILE" not in os.environ and system.exists():
        env["SSL_CERT_FILE"] = str(system)
    return env


def install_locked() -> None:
    """Install what the lock pins, checked by hash, and take away what it does not name."""
    pip = [str(BIN / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--require-hashes"]
    with tempfile.TemporaryDirectory() as folder:
        only_uv = Path(folder) / "uv.txt"
        only_uv.write_text(locked("uv"))
        steps.quiet("uv, by pip", [*pip, "-r", str(only_uv)])
    sync = [str(BIN / "uv"), "pip", "sync", "--quiet", "--require-hashes", str(LOCK)]
    try:
        steps.quiet("packages of requirements.lock, by uv", sync, steps.environment(**pip_settings()))
    except steps.StepFailed as exc:
        print(f"{exc}\n  uv could not do it; pip tries, which takes a minute")
        steps.quiet("packages of requirements.lock, by pip", [*pip, "-r", str(LOCK)])


def install_ours() -> None:
    """Install our packages editable. Their dependencies and build backend are there already: no network."""
    editable = [f"--editable={package}" for package in packages()]
    names = ", ".join(package.name for package in packages())
    command = [str(BIN / "uv"), "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation"]
    steps.quiet(f"our packages, editable: {names}", [*command, *editable])


def write_path() -> None:
    """Have the Python of `.venv` find the modules of `FOUND`."""
    folder = sysconfig.get_path("purelib", "venv", {"base": str(VENV)})
    Path(folder, "osrdyne-checkout.pth").write_text("".join(f"{ROOT / name}\n" for name in FOUND))


def is_linked() -> bool:
    """True when `.venv` has the collection as links, and not a copy that `ansible-galaxy install --force` made."""
    return all((COLLECTION / name).is_symlink() for name in PARTS)


def link_collection() -> None:
    """Have the Ansible of `.venv` find the roles and plugins by the names that they have in the collection.

    Not one link to the root: `.venv` is in there.
    """
    shutil.rmtree(COLLECTION, ignore_errors=True)
    COLLECTION.mkdir(parents=True)
    for name in PARTS:
        (COLLECTION / name).symlink_to(ROOT / name)


def stale() -> List[str]:
    """`--clear` where `.venv` was made by another Python or in another place, so that none of it is mixed in.

    A virtual environment does not survive a move: its scripts name the interpreter by full path.
    """
    config = VENV / "pyvenv.cfg"
    made = config.read_text().splitlines() if config.exists() else []
    same_place = any(line.startswith("command = ") and line.endswith(f" {VENV}") for line in made)
    return [] if same_place and is_of_this_python() else ["--clear"]


def main() -> None:
    """Bring `.venv` up to date, or say that it is."""
    if sys.version_info < OLDEST:
        wanted, here = ".".join(map(str, OLDEST)), sys.version.split()[0]
        steps.stop(f"needs Python {wanted} or later, this is {here}; name one: make setup PYTHON=python{wanted}")
    if is_up_to_date():
        return
    started = time.monotonic()
    print(f"setup: Python {sys.version.split()[0]} into .venv")
    STAMP.unlink(missing_ok=True)
    try:
        ensure_venv_module()
        steps.quiet("virtual environment", [sys.executable, "-m", "venv", *stale(), str(VENV)])
        install_locked()
        install_ours()
        write_path()
        link_collection()
    except steps.StepFailed as exc:
        steps.stop(str(exc))
    STAMP.write_text(digest())
    print(f"setup: done in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
