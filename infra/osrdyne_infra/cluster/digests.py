"""Finds images of a stack that are named by a tag alone: who may push a tag decides what runs under it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from osrdyne_protocol import foreign_json


def warning(raw: Mapping[str, str]) -> str | None:
    """Return what to say of the images in a stack's configuration, None where each has a digest."""
    ours = (value for path, value in raw.items() if path.startswith("osrdyne:"))
    found = sorted({image for value in ours for image in _images(_read(value)) if "@sha256:" not in image})
    if not found:
        return None
    return (
        f"no digest: {', '.join(found)}. Who may push these tags decides what runs; write NAME:TAG@sha256:DIGEST, "
        "which `docker buildx imagetools inspect NAME:TAG` shows"
    )


def _read(value: str) -> Any:
    try:
        return foreign_json.read(value)
    except foreign_json.UnreadableJson:
        return None


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _images(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "image" and isinstance(item, str) and item:
                yield item
            else:
                yield from _images(item)
