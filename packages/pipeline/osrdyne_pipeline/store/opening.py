"""The lake that an option names: in a folder, or in an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from osrdyne_pipeline import places
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_runtime.console.imports import extra

# Imported where an address is given: it takes half a second, and only an extra brings it.
if TYPE_CHECKING:
    from osrdyne_pipeline.store.lake import StoreLake

    AnyLake = Lake | StoreLake


def lake_at(place: str | os.PathLike[str], pool: str) -> AnyLake:
    """Return the lake of a pool; nothing is read or written.

    Raises `InvalidPoolName`, `NotInstalled` where the extra for object stores is missing, and `LakeError` for an
    address of another kind.
    """
    text = os.fspath(place)
    if wrong := places.lake_problem(text):
        raise LakeError(f"no lake can be there: {wrong}")
    if places.scheme(text) is None:
        return Lake(Path(text), pool)
    with extra("osrdyne-pipeline[s3]"):
        from osrdyne_pipeline.store.lake import StoreLake

    return StoreLake(text, pool)
