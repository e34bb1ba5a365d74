"""The only package that imports pika: a connection to the broker for asyncio programs.

It never connects again by itself, and never puts a password into an error or a log. `Connection` and `Channel` are what
users see, with `message` and `errors`. `connecting` opens and keeps a connection, `channels` has what goes over it, and
`codec` frames and tables as bytes. `address` is an address that may change.

On top: `lanes` keeps queues that do not answer from delaying others, `consuming` consumes until that ends,
`event_line` sends events on a connection of their own, `awake` counts only time in which the loop turns.

Pika's own log is silenced unless the program gave the logger `pika` a level before: our errors have the same
information, and at DEBUG it costs more than the messages.
"""

import logging

from osrdyne_amqp.channels.channel import Channel
from osrdyne_amqp.connecting.connection import Connection
from osrdyne_amqp.message import Message, Properties, QueueInfo

__all__ = ["Channel", "Connection", "Message", "Properties", "QueueInfo"]

if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL + 1)
