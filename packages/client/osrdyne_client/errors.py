"""All errors with which a call can end. Every class is an `OsrdyneError`.

They are made in `osrdyne_amqp.errors` (of a connection), `osrdyne_calls.errors` and `osrdyne_protocol.errors`, and are
here so that a program finds all that a call raises in one module.
"""

from osrdyne_amqp.errors import *  # noqa: F403
from osrdyne_calls.errors import *  # noqa: F403
from osrdyne_protocol.errors import *  # noqa: F403
