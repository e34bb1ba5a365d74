"""Which errors of the commands here are one line for a person, with which exit status."""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.console.output import CANNOT, failing_clearly

#: Turns known errors of a command into one line and exit status 2.
one_line_errors = failing_clearly({OsrdyneError: CANNOT})
