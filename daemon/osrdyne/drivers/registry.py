"""Which drivers there are: ours, and those that installed packages register.

A package registers a driver by an entry point of the group `osrdyne.drivers`. Its name is the `kind` of the settings,
its object the driver's class of settings, a `DriverSettings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Union, get_args

from osrdyne.drivers.base_settings import DriverSettings
from osrdyne.drivers.docker.settings import DockerSettings
from osrdyne.drivers.kubernetes.settings import KubernetesSettings
from osrdyne.drivers.noop import NoopSettings
from osrdyne.drivers.subprocess.settings import SubprocessSettings
from osrdyne.drivers.systemd.settings import SystemdSettings

GROUP = "osrdyne.drivers"
_OURS = (SubprocessSettings, NoopSettings, DockerSettings, SystemdSettings, KubernetesSettings)
#: Registered drivers that cannot be used, by name, and why.
broken: dict[str, str] = {}


def _registered() -> Iterator[type[DriverSettings]]:
    for entry_point in entry_points(group=GROUP):
        try:
            found: Any = entry_point.load()
        except Exception as error:  # noqa: BLE001 - a broken driver that is not in use must not break others
            broken[entry_point.name] = (
                f"driver {entry_point.name!r} cannot be loaded from {entry_point.value}: "
                f"{type(error).__name__}: {error}"
            )
            continue
        why = _unusable(entry_point.name, found)
        if why is None:
            yield found
        else:
            broken[entry_point.name] = f"driver {entry_point.name!r}: {entry_point.value} {why}"


def _unusable(name: str, found: Any) -> str | None:
    """Return why an object cannot be the settings of the driver `name`; None when it can."""
    if not (isinstance(found, type) and issubclass(found, DriverSettings)):
        return "must be a class derived from DriverSettings"
    if name in _kinds():
        return "has the name of a driver of osrdyne; choose another"
    if get_args(found.model_fields["kind"].annotation) != (name,):
        return f"must have the field kind: Literal[{name!r}]"
    return None


def _kinds() -> set[str]:
    return {kind for settings in _OURS for kind in get_args(settings.model_fields["kind"].annotation)}


if TYPE_CHECKING:
    AnyDriverSettings = DriverSettings
else:
    #: The settings of any driver; `kind` says of which.
    AnyDriverSettings = Union[*_OURS, *_registered()]
