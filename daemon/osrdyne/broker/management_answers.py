"""What the daemon reads from answers of the management API, other than a topology. Pure.

Every function raises TypeError, KeyError, ValueError or AttributeError for an answer that RabbitMQ never gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from osrdyne_protocol import headers
from osrdyne_protocol.broker.management_json import table, text
from osrdyne_protocol.names import PoolNames


def own_key(raw: Mapping[str, Any]) -> str | None:
    """Return the key of a queue that is exactly what the daemon declares under its name; None for any other."""
    name = text(raw, "name")
    key = headers.text(table(raw, "arguments").get(headers.X_OSRDYNE_KEY))
    if key is None or raw.get("type") != "quorum":
        return None
    return key if PoolNames(name.partition("-req-")[0]).request_queue(key) == name else None


def alarms(answer: str) -> str | None:
    """Return the resources that a failed alarm check names, for example `memory`; None when it names none."""
    try:
        found = {str(one["resource"]) for one in json.loads(answer)["alarms"]}
    except (ValueError, TypeError, KeyError):
        return None
    return ", ".join(sorted(found)) or None
