"""In which order Pulumi makes and deletes the resources of a component."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi


def child(
    parent: pulumi.ComponentResource, after: Sequence[pulumi.Resource] = (), *, replaced: bool = False
) -> pulumi.ResourceOptions:
    """Return the options of a part of a component, made after other resources and deleted before them.

    What is replaced is made first and deleted last, when the guards have been asked. The provider would have it the
    other way round, because our names are not random. Only what has to be `replaced` under its name is deleted first.
    """
    return pulumi.ResourceOptions(parent=parent, depends_on=list(after), delete_before_replace=replaced)
