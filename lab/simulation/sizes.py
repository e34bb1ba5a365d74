"""How large everything is that objects lead to: each container, named by what holds it.

Looks from outside, at attributes and at the variables of coroutines that wait; what belongs to the simulation is left
out. The length of a container stands for it: of a long one only the first entries are looked into.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from simulation.daemons import OnModel
from simulation.model.client import ModelChannel, ModelConnection

_CONTAINERS = (dict, list, set, deque, frozenset, tuple)
# A logger leads to all loggers of the process.
_LEAVES = (
    *(str, bytes, int, float, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(logging.Logger, logging.LoggerAdapter),
)
#: Packages whose modules may hold something, too.
_PACKAGES = (
    *("osrdyne", "osrdyne_amqp", "osrdyne_calls", "osrdyne_client"),
    *("osrdyne_pool", "osrdyne_protocol", "osrdyne_runtime"),
)
#: Entries of one container that are looked into.
_LOOKED_INTO = 200
#: Classes of the simulation that are mostly the daemon's and the client's own code.
_OURS = (OnModel, ModelChannel, ModelConnection)


def sizes(roots: Iterable[Any]) -> Counter[str]:
    """Return how many entries the containers of each name have together, from `roots` and from modules of ours."""
    found: Counter[str] = Counter()
    # Kept, because some of it is made only when it is looked at: another object would get its id.
    seen: dict[int, Any] = {}
    waiting = [(type(root).__name__, root) for root in roots]
    waiting += _of_modules()
    while waiting:
        name, one = waiting.pop()
        if id(one) in seen or isinstance(one, _LEAVES) or _is_foreign(one):
            continue
        seen[id(one)] = one
        if isinstance(one, _CONTAINERS):
            found[name] += len(one)
            waiting += [(f"{name}[]", part) for part in _entries(one)]
        else:
            waiting += _parts(one)
    return found


def _of_modules() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _PACKAGES:
            for variable, value in vars(module).items():
                if isinstance(value, dict | list | set | deque) and not variable.startswith("__"):
                    yield f"{name}.{variable}", value


def _is_foreign(one: Any) -> bool:
    """Say whether an object is the simulation's own."""
    return type(one).__module__.startswith(("simulation.", "tests.")) and not isinstance(one, (*_OURS, asyncio.Task))


def _entries(one: Any) -> Iterator[Any]:
    for at, part in enumerate(one.items() if isinstance(one, dict) else one):
        if at == _LOOKED_INTO:
            return
        if isinstance(one, dict):
            yield from part
        else:
            yield part


def _parts(one: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, each under a name that is the same for all of its kind."""
    if isinstance(one, types.MethodType):
        yield type(one.__self__).__name__, one.__self__
        return
    kind = type(one).__name__.lstrip("_")
    if isinstance(one, asyncio.Future):
        yield "Future._callbacks", [callback for callback, _ in one._callbacks or ()]
    if isinstance(one, asyncio.Task):
        yield from _variables(one.get_coro())
        return
    names = list(getattr(one, "__dict__", ()))
    for base in type(one).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    for name in names:
        if not name.startswith("__"):
            yield f"{kind}.{name}", getattr(one, name, None)


def _variables(coroutine: Any) -> Iterator[tuple[str, Any]]:
    while coroutine is not None and hasattr(coroutine, "cr_frame"):
        if coroutine.cr_frame is not None:
            for name, value in coroutine.cr_frame.f_locals.items():
                yield f"{coroutine.__qualname__}:{name}", value
        coroutine = coroutine.cr_await
