"""Lets pods reach a port of this machine's loopback: `python -m ... .forward ADDRESS PORT`, until its input ends.

What connects to ADDRESS:PORT is connected to 127.0.0.1:PORT; each direction ends when its source does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys


async def main(address: str, port: int) -> None:
    """Serves until standard input ends."""
    # At the end of input the process ends at once, with all connections.
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 1) or os._exit(0))

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            # Nothing listens: reset the connection, so that the client does not take it for one that was served.
            writer.transport.abort()
            return
        await asyncio.gather(pump(reader, onward[1]), pump(onward[0], writer))
        for stream in (writer, onward[1]):
            stream.close()

    server = await asyncio.start_server(connect, address, port, backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on until there are no more."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        return
    writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
