"""`make site`: make the docs as a site, in dist/site/draft. `--check` only reads them; `--list FOLDER` lists versions.

Sphinx reads the pages of the whole project, as docs/conf.py says. A link that leads nowhere is an error, as is anything
else that it warns of. Where a site is served, each version has a folder, and `versions.json` beside them lists them for
the choice on each page. `make release` makes the folder of a version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import steps
import versions
from osrdyne_runtime.console.streams import guarded

#: What Sphinx calls the first page; a folder's own address shows it.
FIRST = "docs/README.html"
DRAFT = "draft"


def sphinx(builder: str, target: Path, tree: Path, version: str) -> list[str]:
    """Return the command that reads the pages of a tree; warnings are errors, and all of them are shown."""
    return [
        *(str(steps.BIN / "sphinx-build"), "--quiet", "--fail-on-warning", "-b", builder, "-c", str(tree / "docs")),
        *("-d", str(target) + ".read", "-D", f"release={version}", str(tree), str(target)),
    ]


def build(target: Path, version: str, tree: Path = steps.ROOT, epoch: int | None = None) -> None:
    """Make the site of one version in a folder. Raises CalledProcessError: what is wrong has been said.

    The same tree gives the same files. `epoch` is the time that they carry, in seconds since 1970.
    """
    environment = steps.environment(PYTHONHASHSEED="0", **({"SOURCE_DATE_EPOCH": str(epoch)} if epoch else {}))
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        made = Path(folder, "html")
        subprocess.run(sphinx("html", made, tree, version), cwd=tree, env=environment, check=True)
        (made / ".buildinfo").unlink()
        (made / "index.html").write_text(_leads_to(FIRST))
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, target)


def list_versions(site: Path) -> list[str]:
    """Write which versions a site has, and a first page that leads to the newest; return them, the newest first.

    A folder of another name is left out. Ends the script where there is none.
    """
    names = [page.parents[1].name for page in site.glob(f"*/{FIRST}")]
    found = sorted((name for name in names if name == DRAFT or versions.VERSION.fullmatch(name)), key=_order)[::-1]
    if not found:
        steps.stop(f"{site} has no folder of a version; unpack the archive of a release there")
    (site / "versions.json").write_text(json.dumps(found) + "\n")
    (site / "index.html").write_text(_leads_to(f"{found[0]}/{FIRST}"))
    return found


def _order(version: str) -> tuple[int, ...]:
    return (-1,) if version == DRAFT else versions.number(version)


def _leads_to(page: str) -> str:
    return (
        '<!doctype html><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="0; url={page}"><a href="{page}">osrdyne</a>\n'
    )


def check() -> int:
    """Read all pages and follow their links, without making files; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        command = sphinx("dummy", Path(folder, "none"), steps.ROOT, "")
        return subprocess.run(command, cwd=steps.ROOT, env=steps.environment(), check=False).returncode


def main() -> None:
    """Do what the command line says."""
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    if sys.argv[1:2] == ["--list"]:
        print(f"site: {', '.join(list_versions(Path(*sys.argv[2:])))}")
        return
    site = steps.ROOT / "dist/site"
    try:
        build(site / DRAFT, DRAFT)
    except subprocess.CalledProcessError:
        steps.stop("the pages have mistakes: see above")
    list_versions(site)
    print(f"site: {os.path.relpath(site / 'index.html')}")


if __name__ == "__main__":
    with guarded("site"):
        main()
