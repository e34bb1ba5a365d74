"""The publishing half of the broker's half of a channel: routing, returns, confirms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from simulation.model import history
from simulation.model.lane import Lane
from simulation.model.message import Message
from simulation.model.refusals import Refusal
from simulation.model.routing import REPLY_TO, direct_address
from simulation.model.stall import UNREACHED_SECONDS, Stall

if TYPE_CHECKING:
    from simulation.model.queue import Queue
    from simulation.model.server import ServerConnection


class ClientChannel(Protocol):
    """What the client's half hears; called when it arrives there."""

    def answered(self, answer: Any) -> None: ...
    def delivered(self, tag: str, number: int, redelivered: bool, message: Message, headers: Any) -> None: ...
    def returned(self, code: int, text: str, message: Message) -> None: ...
    def settled(self, number: int, multiple: bool, accepted: bool, messages: list[Message]) -> None: ...
    def consumer_cancelled(self, tag: str) -> None: ...
    def closed(self, code: int, text: str) -> None: ...


class ServerPublishing:
    """Takes the publishes of one channel; `ServerChannel` adds the rest."""

    def __init__(self, connection: ServerConnection, number: int, client: ClientChannel, down: Lane) -> None:
        self.connection = connection
        self.number = number
        self.open = True
        #: consumer tag of direct reply-to
        self.reply_tag: str | None = None
        self._broker = connection.broker
        self._client = client
        self._down = down
        self._confirming = False
        self._published = 0
        self._arrives = 0.0  # when the latest publish is in its queues
        #: publishes that are not settled yet, by number
        self._unsettled: dict[int, Message] = {}
        self._settling: list[int] = []
        #: what it waits for, if it does
        self.stall: Stall | None = None

    def refuse(self, refusal: Refusal) -> None:
        raise NotImplementedError

    def publish(
        self,
        exchange: str,
        routing_key: str | bytes,
        properties: Mapping[str, Any],
        body: bytes,
        mandatory: bool,
        sent_at: float,
    ) -> None:
        if not self.open:
            return
        broker = self._broker
        try:
            self.connection.may("write", exchange or "amq.default", "exchange")
            properties = self._with_reply_address(properties)
            targets = broker.routing.route(exchange, routing_key, properties["headers"])
            if targets is None:
                raise Refusal(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'")
        except Refusal as refusal:
            self.refuse(refusal)
            return
        name = self.connection.name
        shown = _without_bcc(properties)
        message = Message(broker.next_number(), exchange, routing_key, shown, body, name, sent_at=sent_at)
        number = 0
        if self._confirming:
            self._published = number = self._published + 1
            self._unsettled[number] = message
        broker.record(history.PUBLISHED, name, exchange, message, mandatory)
        if targets:
            self._accept(targets, message, number)
            return
        if exchange or not self._is_direct_reply(message, mandatory):
            broker.record(history.UNROUTED, name, exchange, message)
            if mandatory:
                self._down.send(self._client.returned, 312, "NO_ROUTE", message)
        self._confirm_later(number, True)

    def _accept(self, targets: list[Queue], message: Message, number: int) -> None:
        broker = self._broker
        lost = next((target for target in targets if target.lost), None)
        if lost is not None:
            self.wait(lost, UNREACHED_SECONDS, partial(self._enqueue, targets, message, number))
            return
        refused = broker.confirming.refuse
        if refused and broker.rng.random() < refused:
            self._confirm_later(number, False)
            return
        self._arrives = max(broker.now + broker.between(broker.timing.enqueue), self._arrives + 1e-7)
        broker.loop.call_at(self._arrives, self._enqueue, targets, message, number)

    def _enqueue(self, targets: list[Queue], message: Message, number: int) -> None:
        if not self._broker.running:
            return
        accepted = True
        for target in targets:
            accepted = target.enqueue(message) and accepted
        self._confirm_later(number, accepted)

    # --- waiting for a lost queue ---

    def wait(self, queue: Queue, seconds: float, then: Callable[[], None], *, until_deleted: bool = True) -> None:
        """Wait for a lost queue for so long, or until it is deleted, and then do `then`; do nothing else meanwhile."""
        broker = self._broker
        self.stall = stall = Stall(queue, then)
        stall.timer = broker.loop.call_later(seconds, self.go_on, stall)
        if until_deleted:
            queue.waiting[stall] = self.go_on
        self._down.hold()
        broker.record(history.STALLED, self.connection.name, queue.name, detail=(self.number, seconds))

    def go_on(self, stall: Stall) -> None:
        """A wait is over: do what it was for, and then what has arrived since, until that makes the channel wait."""
        if self.stall is not stall:
            return
        self._broker.record(history.WENT_ON, self.connection.name, stall.queue.name, detail=self.number)
        self.forget_stall()
        self._down.release()
        stall.then()
        for happened, arguments in stall.behind:
            if self.waits:
                self.put_behind(happened, arguments)
            elif self.open:
                happened(*arguments)
        self.connection.read_on()

    def forget_stall(self) -> None:
        stall, self.stall = self.stall, None
        if stall is not None and stall.timer is not None:
            stall.timer.cancel()
            stall.queue.waiting.pop(stall, None)

    @property
    def waits(self) -> bool:
        return self.stall is not None

    def put_behind(self, happened: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
        """Keep for later what arrives; False: the broker must not read more of the connection for now."""
        assert self.stall is not None
        self.stall.behind.append((happened, arguments))
        self.stall.publishes += _is_publish(happened)
        return self.stall.takes_more

    # --- direct reply-to ---

    def _with_reply_address(self, properties: Mapping[str, Any]) -> Mapping[str, Any]:
        if properties["reply_to"] != REPLY_TO:
            return properties
        if self.reply_tag is None:
            raise Refusal(406, "PRECONDITION_FAILED - fast reply consumer does not exist")
        return {**properties, "reply_to": direct_address(self.connection.serial, self.number, self.reply_tag)}

    def _is_direct_reply(self, message: Message, mandatory: bool) -> bool:
        """Deliver a direct reply; False: this is none, or there is no route for it."""
        address = message.routing_key
        if not isinstance(address, str) or not address.startswith(REPLY_TO + "."):
            return False
        self._broker.reply_directly(address, message)
        # 4.0 has no route for such a reply, though it delivers it; later ones always have one.
        return not mandatory or self._broker.version != "4.0"

    # --- confirms ---

    def _confirm_later(self, number: int, accepted: bool) -> None:
        if not number or not self.open:
            return
        broker = self._broker
        confirming = broker.confirming
        if not accepted:
            self._down.send(self._client.settled, number, False, False, [self._unsettled.pop(number)])
            return
        if confirming.never and broker.rng.random() < confirming.never:
            return
        least, most = confirming.delay
        broker.loop.call_later(least + (most - least) * broker.rng.random(), self._confirm, number)

    def _confirm(self, number: int) -> None:
        if not self.open:
            return
        broker = self._broker
        self._settling.append(number)
        confirming = broker.confirming
        if confirming.multiple and broker.rng.random() < confirming.multiple:
            # It leaves with the next, which is what makes the broker write `multiple`.
            if len(self._settling) == 1:
                broker.loop.call_later(confirming.delay.most, self._flush)
            return
        self._flush()

    def _flush(self) -> None:
        if not self.open or not self._settling:
            return
        due = sorted(self._settling)
        self._settling.clear()
        unsettled = self._unsettled
        messages = [unsettled.pop(tag) for tag in due]
        lowest = min(unsettled) if unsettled else due[-1] + 1
        together = [at for at, tag in enumerate(due) if tag < lowest]
        if len(together) > 1:
            last = together[-1]
            self._down.send(self._client.settled, due[last], True, True, messages[: last + 1])
            due, messages = due[last + 1 :], messages[last + 1 :]
        for number, message in zip(due, messages, strict=True):
            self._down.send(self._client.settled, number, False, True, [message])


def _is_publish(happened: Callable[..., Any]) -> bool:
    return getattr(happened, "__func__", None) is ServerPublishing.publish


def _without_bcc(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    headers = properties["headers"]
    if not headers or "BCC" not in headers:
        return properties
    return {**properties, "headers": {name: value for name, value in headers.items() if name != "BCC"}}
