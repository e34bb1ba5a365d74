"""What `from osrdyne_client.errors import *` gives a program."""

from __future__ import annotations

from osrdyne_client import errors
from osrdyne_protocol.errors import OsrdyneError


def test_the_module_of_errors_has_nothing_but_errors() -> None:
    found = {name: value for name, value in vars(errors).items() if not name.startswith("_")}
    others = {
        name for name, value in found.items() if not (isinstance(value, type) and issubclass(value, OsrdyneError))
    }

    assert others == {"REMOTE_ERRORS"}
    assert {"CallTimeout", "InvalidKey", "BrokerUnreachable"} <= found.keys()
