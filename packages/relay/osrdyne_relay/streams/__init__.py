"""Data streams: large parts of requests and responses, which do not go through Redis.

`base` is the interface of a store and the handle that reads lazily. `directory` is a store in a shared directory, and
`s3` one in a bucket, which needs a library that is installed by choice and so is not imported here.
"""

from osrdyne_relay.streams.base import DataStreams, NoStreams, Source, StoredStream
from osrdyne_relay.streams.directory import SharedDirectory

__all__ = ["DataStreams", "NoStreams", "SharedDirectory", "Source", "StoredStream"]
