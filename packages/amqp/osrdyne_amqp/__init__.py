"""The only package that imports pika: a connection to the broker for asyncio programs.

It never connects again by itself, and never puts a password into an error or a log. `connection` and `channel` are
what users see, with `message` and `errors`. `opening` reads the address and says why connecting failed, with `tls`;
`address` is an address that may change.

Below a channel: `publishing` and `confirms` for publishes, `acknowledgements` for deliveries, `pending_calls` for
calls, `content` puts messages together, `arguments` checks what is declared. `frames`, `table` and `table_writing` are
pure codecs. `wire` is the one place where pika's inner parts are touched.

On top: `lanes` keeps queues that do not answer from delaying others, `consuming` consumes until that ends,
`event_line` sends events on a connection of their own, `thread_bridge` hands actions from threads to a loop, `awake`
counts only time in which the loop turns.

Pika's own log is silenced unless the program gave the logger `pika` a level before: our errors have the same
information, and at DEBUG it costs more than the messages.
"""

import logging

from osrdyne_amqp.channel import Channel
from osrdyne_amqp.connection import Connection
from osrdyne_amqp.message import Message, Properties, QueueInfo

__all__ = ["Channel", "Connection", "Message", "Properties", "QueueInfo"]

if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL + 1)
