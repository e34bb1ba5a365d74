"""HTML and SVG as elements, so that text stays text: no key, reason or name of a file can become markup.

Characters that cannot be seen, or that turn the direction of writing, are shown escaped.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

Child = Element | str | None


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Return an element. A trailing `_` of an attribute's name is dropped, others become `-`; None leaves it out."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-") if name != "viewBox" else name, _value(value))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + visible(child)
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + visible(child)
    return made


def visible(text: str) -> str:
    """Return text with what cannot be seen written out, as in Python; line breaks stay."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def shown(key: str, longest: int = 0) -> str:
    """Return a key as a person can read it: quoted where that is not clear, cut in its middle beyond `longest`."""
    clear = key and key.isprintable() and key == key.strip()
    text = key if clear else f"'{visible(key)}'".replace("\n", "\\n")
    if longest and len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[: longest - 1 - half]}…{text[-half:]}"
    return text


def html(root: Element) -> str:
    """Return an element as HTML text."""
    return tostring(root, encoding="unicode", method="html")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return visible(str(value))
