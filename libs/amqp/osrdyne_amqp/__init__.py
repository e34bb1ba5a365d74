"""The only package that imports pika: a connection to the broker for asyncio programs.

Reads a broker URI, writes to the broker. Never reconnects (its users know what to do again), never puts a
password into an error or a log. `table` and `frames` are pure codecs, `confirms` the bookkeeping of
publishes, `channel` and `connection` what users see, `wire` the one place where pika's inner parts are
touched, `opening` URIs and why connecting failed.

Pika's own log is silenced unless the program gave the logger `pika` a level before: what it would say is in
our errors, and at DEBUG it costs more than the messages.
"""

import logging

from osrdyne_amqp.channel import Channel
from osrdyne_amqp.connection import Connection
from osrdyne_amqp.message import Message, Properties, QueueInfo

__all__ = ["Channel", "Connection", "Message", "Properties", "QueueInfo"]

if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL + 1)
