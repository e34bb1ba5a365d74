"""Documents of CycloneDX 1.6: what a release, or an image, consists of.

Needs nothing but Python: the Dockerfiles run it, too.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any


def document(
    root: Mapping[str, Any],
    components: list[dict[str, Any]],
    dependencies: Iterable[Mapping[str, Any]],
    timestamp: str = "",
) -> dict[str, Any]:
    """Return a document about `root`. Its serial number follows from `root` and the components.

    `timestamp` is in ISO 8601 and UTC; empty for none.
    """
    digest = hashlib.sha256(repr((root, components)).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {**({"timestamp": timestamp} if timestamp else {}), "component": root},
        "components": components,
        "dependencies": list(dependencies),
    }


def library(name: str, version: str, purl: str, **more: Any) -> dict[str, Any]:
    """Return a component, known by its package URL; `version` may be empty."""
    about = {"type": "library", "bom-ref": purl, "name": name, "purl": purl}
    return about | ({"version": version} if version else {}) | more


def of_pypi(name: str, version: str = "") -> str:
    """Return the package URL of a package of PyPI."""
    return f"pkg:pypi/{name}{'@' if version else ''}{version}"
