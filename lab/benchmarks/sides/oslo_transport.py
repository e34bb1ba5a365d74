"""What client and server of oslo.messaging have in common."""

from __future__ import annotations

import warnings
from typing import Any

import oslo_messaging
from oslo_config import cfg

from benchmarks.sides import turns


def transport() -> Any:
    """Return a transport with all defaults."""
    cfg.CONF([])
    made = oslo_messaging.get_rpc_transport(cfg.CONF, url=turns.uri())
    # The driver, which is imported only now, asks Python to show its warning at every request.
    warnings.simplefilter("ignore")
    return made
