"""Short programs that a real broker and the model must answer alike: how the model is shown to be true.

Each is an asynchronous function that is given a `Bench` and returns what it saw. `ALL` has them by name.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

from simulation.model.programs import dying, faulty, losing, objects, returning, routing, settling
from simulation.model.programs.bench import Bench

Program = Callable[[Bench], Awaitable[Any]]


def _programs(module: ModuleType) -> Mapping[str, Program]:
    return {
        name: var
        for name, var in vars(module).items()
        if callable(var) and not name.startswith("_") and getattr(var, "__module__", "") == module.__name__
    }


#: On a virtual host of their own.
ALL: Mapping[str, Program] = {
    name: program
    for module in (routing, objects, settling, returning, dying, losing)
    for name, program in _programs(module).items()
}
#: On a broker of their own.
FAULTY: Mapping[str, Program] = _programs(faulty)

__all__ = ["ALL", "Bench", "FAULTY", "Program"]
