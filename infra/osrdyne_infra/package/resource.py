"""The base of our own resources. In a program in Python they are dynamic resources; in our plugin, custom resources.

Pulumi's engine serves a dynamic resource by the Python that is first on PATH. For a program in Python, this package is
installed there. For a program in another language it may not be, and the plugin serves the resource itself.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import dynamic

#: Name of the package, which begins the types of its resources.
PACKAGE = "osrdyne"
#: What serves a resource, by the kind of the resource.
PROVIDERS: dict[str, type[dynamic.ResourceProvider]] = {}


class Registration:
    """How this process declares our own resources; the plugin sets it once, at its start."""

    #: In the plugin, the version of the package, and resources are custom ones. In a program None: they are dynamic.
    version: str | None = None


class OwnResource(dynamic.Resource):
    """A resource that `provider` serves; `kind` is its name within the package."""

    _kind: str
    _served_by: type[dynamic.ResourceProvider]

    def __init_subclass__(cls, *, kind: str, provider: type[dynamic.ResourceProvider]) -> None:
        super().__init_subclass__(module=PACKAGE, name=kind)
        cls._kind, cls._served_by = kind, provider
        PROVIDERS[kind] = provider

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        if Registration.version is None:
            super().__init__(self._served_by(), name, inputs, opts)
        else:
            merged = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=Registration.version))
            # Past the constructor of dynamic resources, which would write the provider's code into the state.
            super(dynamic.Resource, self).__init__(f"{PACKAGE}:index:{self._kind}", name, inputs, merged)
