"""How Sphinx makes the site, for tools/site_of_docs.py. Its source is the root of the project, with all pages."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

project = "osrdyne"
author = "The osrdyne authors"
copyright = author
# Of the packages whose interfaces are shown, those of this tree.
sys.path[:0] = map(str, sorted(ROOT.glob("packages/*")))
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/README"
include_patterns = ["docs/**", "README.md", "**/README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "dist"]

# Anchors of headings are those that the pages' links were written with.
myst_heading_anchors = 6
# Docstrings name code in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = project
html_static_path = ["site/site.css", "site/versions.js"]
html_css_files = ["site.css"]
templates_path = ["site"]
html_show_sphinx = False
html_copy_source = False
html_permalinks_icon = "#"
html_theme_options = {"navigation_with_keys": True}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

_LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")
_ANY = re.compile(r"\[([^\[\]]+)\]\(([^)#:]+)\)")
#: What of a class is in the documentation of others.
_BASES = "BaseModel,BaseException,Enum,str,object"
DECISIONS = "docs/decisions/README"
CLIENT = "osrdyne_client"


def contents(page: str, text: str) -> str:
    """Return the contents below an index page: what it links to, in its order, by its headings and tables."""
    parts: list[tuple[str, list[str]]] = []
    if page == root_doc:
        parts.append(("", ["../README.md"]))
        heading = ""
        for line in text.splitlines():
            if line.startswith("## "):
                heading = line[3:].split(":")[0]
                parts.append((heading, []))
            elif (top := re.fullmatch(r"\| ([^|\[]+) \| \|", line)) and top[1] != "page":
                parts.append((f"{heading}: {top[1].split(':')[0]}", []))
            elif parts:
                parts[-1][1].extend(_LINK.findall(line))
        parts.append(("Interfaces in Python", ["api/*"]))
        parts.append(("Changes", ["../CHANGELOG.md"]))
    else:
        parts.append(("", sorted(set(_LINK.findall(text)))))
    return "".join(_toctree(caption, links) for caption, links in parts if links)


def _toctree(caption: str, links: list[str]) -> str:
    rows = "\n".join(link.removesuffix(".md") for link in links)
    return f"\n```{{toctree}}\n:hidden:\n:glob:\n{f':caption: {caption}' if caption else ''}\n\n{rows}\n```\n"


def interfaces(package: str) -> str:
    """Return what the page of a package has: all of its `__all__`, with the errors below the rest."""
    module = importlib.import_module(package)
    members = {name: getattr(module, name) for name in sorted(module.__all__)}
    errors = [name for name, value in members.items() if _is_error(value)]
    rest = [name for name in members if name not in errors]
    heading = ["Errors\n------"] if errors else []
    return "\n\n".join(
        [
            *(_row(package, name, members[name]) for name in rest),
            *heading,
            *(_row(package, name, members[name]) for name in errors),
            "",
        ]
    )


def _row(package: str, name: str, value: object) -> str:
    full = f"{package}.{name}"
    if isinstance(value, type):
        kind = "exception" if _is_error(value) else "class"
        # The index has each class once: in the page of the client where packages share it.
        shared = package != CLIENT and getattr(importlib.import_module(CLIENT), name, None) is value
        index = "\n   :no-index:" if shared else ""
        return f".. auto{kind}:: {full}\n   :members:\n   :inherited-members: {_BASES}{index}"
    return f".. autofunction:: {full}" if inspect.isfunction(value) else f".. py:data:: {full}"


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _folders(page: str, text: str) -> str:
    """Lead links to folders to their README, and leave those without one as text."""

    def there(link: re.Match[str]) -> str:
        folder = (ROOT / page).parent / link[2]
        if not folder.is_dir():
            return link[0]
        return f"[{link[1]}]({link[2]}/README.md)" if (folder / "README.md").exists() else link[1]

    return _ANY.sub(there, text)


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _folders(page, source[0])
    if page in (root_doc, DECISIONS):
        source[0] += contents(page, source[0])
    if page.startswith("docs/api/"):
        source[0] += "\n" + interfaces(f"osrdyne_{page.rpartition('/')[2]}")


def setup(app: Sphinx) -> None:
    """Let Sphinx read the pages as they are meant here."""
    app.connect("source-read", _read)
    # Diagrams are drawn where the project is hosted; here they are text.
    app.add_lexer("mermaid", TextLexer)
