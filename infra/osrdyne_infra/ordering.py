"""How components and their parts belong together: order of making and deleting, and what they were called before."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from osrdyne_infra.errors import ConfigurationError


def own(component: str, beginning: str, name: str) -> str:
    """Return how a part is called in the program, where two components may have one of the same name.

    That is its name with the component's in place of its `beginning`. In a component that is called like the beginning
    it is the whole name, as in earlier releases: a long name is cut, and need not have the beginning.
    """
    return name if component == beginning else component + name.removeprefix(beginning)


def child(
    parent: pulumi.ComponentResource, after: Sequence[pulumi.Resource] = (), *, replaced: bool = False
) -> pulumi.ResourceOptions:
    """Return the options of a part of a component, made after other resources and deleted before them.

    What is replaced is made first and deleted last, when the guards have been asked. The provider would have it the
    other way round, because our names are not random. Only what has to be `replaced` under its name is deleted first.
    """
    return pulumi.ResourceOptions(parent=parent, depends_on=list(after), delete_before_replace=replaced)


def inside(
    parent: pulumi.ComponentResource, after: Sequence[pulumi.Resource] = (), *, former: str | None = None
) -> pulumi.ResourceOptions:
    """Return the options of a part that earlier releases declared without a parent, and by its `former` name."""
    root = pulumi.ROOT_STACK_RESOURCE
    alias = pulumi.Alias(parent=root) if former is None else pulumi.Alias(name=former, parent=root)
    return pulumi.ResourceOptions(parent=parent, depends_on=list(after), aliases=[alias])


def outer(
    given: pulumi.ResourceOptions | None, *former: str, providers: Sequence[pulumi.ProviderResource] = ()
) -> pulumi.ResourceOptions:
    """Return the options of a component, with those that a program gives. Its kind was one of `former`."""
    if given is not None and given.deleted_with is not None:
        problem = "is not an option of these components: a guard that is not deleted itself does not look at queues"
        raise ConfigurationError("deleted_with", problem, "opts=pulumi.ResourceOptions(depends_on=[...])")
    ours = pulumi.ResourceOptions(aliases=[pulumi.Alias(type_=kind) for kind in former], providers=list(providers))
    return pulumi.ResourceOptions.merge(given, ours)
