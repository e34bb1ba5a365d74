"""Which publish is waiting for which confirm, and how a returned message finds its publish. No I/O.

The broker numbers the publishes of a confirm channel from 1 and settles them in any order, one by one or all
up to a number. A return carries the message only, and comes before the confirm of the same publish: it is
recognised by the header `x-osrdyne-publish-id`, or by the correlation id where that is unambiguous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from osrdyne_amqp.errors import BrokerError, Nacked, Returned
from osrdyne_protocol.headers import X_PUBLISH_ID


class Confirms:
    """The publishes of one channel that wait for their confirm."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._published = 0
        self._settled = 0  #: the broker has settled all up to this number
        self._made_ids = 0
        #: number -> future, key by which a return finds it (None: cannot be returned), a return is an answer
        self._pending: dict[int, tuple[asyncio.Future[Any], object, bool]] = {}
        self._returnable: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def key(self, values: Mapping[str, Any], publish_id: str | None) -> tuple[object, Mapping[str, Any]]:
        """Return the key by which a return finds this publish, and the properties that carry it.

        Raises ValueError when `publish_id` is that of a publish still waiting.
        """
        headers = values["headers"]
        if publish_id is None:
            key = values["correlation_id"]
            if (
                isinstance(key, (str, bytes))
                and key not in self._returnable
                and not (headers and X_PUBLISH_ID in headers)
            ):
                return key, values
            self._made_ids += 1
            publish_id = f"{self._name}.{self._made_ids}"
        if (X_PUBLISH_ID, publish_id) in self._returnable:
            raise ValueError(f"publish id {publish_id!r} is already in flight on this channel")
        return (X_PUBLISH_ID, publish_id), {
            **values,
            "headers": {**(headers or {}), X_PUBLISH_ID: publish_id},
        }

    def add(self, future: asyncio.Future[Any] | None, key: object = None, *, final: bool = False) -> None:
        """Note one published message; without a future, its confirm is ignored."""
        self._published = tag = self._published + 1
        if future is not None:
            self._pending[tag] = (future, key, final)
            if key is not None:
                self._returnable[key] = tag

    def settle(self, tag: int, multiple: bool, accepted: bool) -> None:
        """Handle the broker's ack or nack. A number without a waiting future is not an error (returned, or `send`)."""
        if not multiple:
            self._settle_one(tag, accepted)
            return
        last = tag or self._published
        for number in range(self._settled + 1, last + 1):
            self._settle_one(number, accepted)
        self._settled = max(self._settled, last)

    def _settle_one(self, tag: int, accepted: bool) -> None:
        pending = self._pending.pop(tag, None)
        if pending is None:
            return
        future, key, final = pending
        if key is not None:
            del self._returnable[key]
        if future.done():
            return
        if accepted:
            future.set_result(True if final else None)
        else:
            future.set_exception(Nacked())

    def returned(self, error: Returned, headers: Mapping[Any, Any] | None, correlation_id: object) -> bool:
        """Handle a returned message; return False when no waiting publish is known for it."""
        tag = None
        made_id = headers.get(X_PUBLISH_ID) if headers else None
        if isinstance(made_id, str):  # a foreign message may carry anything under this name
            tag = self._returnable.pop((X_PUBLISH_ID, made_id), None)
        if tag is None and correlation_id is not None:
            tag = self._returnable.pop(correlation_id, None)
        if tag is None:
            return False
        future, _, final = self._pending.pop(tag)
        if future.done():
            return True
        if final:
            future.set_result(False)
        else:
            future.set_exception(error)
        return True

    def fail(self, reason: BrokerError) -> None:
        """Fail all waiting publishes: the channel has ended."""
        for future, _, _ in self._pending.values():
            if not future.done():
                future.set_exception(reason.again())
        self._pending.clear()
        self._returnable.clear()
