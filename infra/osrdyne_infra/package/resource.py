"""Resources of our own: dynamic ones of a program in Python, and custom ones of the package where its plugin runs.

The engine has a dynamic resource served by the Python that is first on PATH. That of a program in Python has this
package. For a program in another language, only the plugin is known to have it.
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
    """For what this process declares resources."""

    #: The version of the package, in its plugin; None in a program.
    version: str | None = None


class OwnResource(dynamic.Resource):
    """A resource that `provider` serves, one way or the other."""

    def __init_subclass__(cls, *, kind: str, provider: type[dynamic.ResourceProvider]) -> None:
        super().__init_subclass__(module=PACKAGE, name=kind)
        cls._kind, cls._served_by = kind, provider
        PROVIDERS[kind] = provider

    _kind: str
    _served_by: type[dynamic.ResourceProvider]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        if Registration.version is None:
            super().__init__(self._served_by(), name, inputs, opts)
        else:
            ours = pulumi.ResourceOptions(version=Registration.version)
            merged = pulumi.ResourceOptions.merge(opts, ours)
            # Past the class of dynamic resources, which would put a provider into the state.
            super(dynamic.Resource, self).__init__(f"{PACKAGE}:index:{self._kind}", name, inputs, merged)
