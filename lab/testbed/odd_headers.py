"""What strangers put into the headers of HTTP requests: bytes that are not text, and text that is not ASCII."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

ODD = (
    *(bytes([number]) for number in (0x80, 0xE9, 0xFF)),
    "ключ \N{PILE OF POO}".encode(),
    b"\xed\xa0\x80",  # half of a surrogate pair
    b"\xc3\x28",
    b'{"x":"\xff"}',
    b'{"x":"\\ud800"}',
    b"%ff%00",
    b"x" * 5000 + b"\xe9",
)
#: Headers that a server of ours reads.
READ = (
    *("Authorization", "Host", "Content-Type", "Content-Encoding", "Accept", "Cookie", "Origin", "User-Agent"),
    *("Relay-Headers", "Relay-Streams", "Relay-Request", "Upgrade", "Expect", "X-Forwarded-For"),
)
#: Before the odd bytes, for them to get as far as possible.
_BEGINS = {"Authorization": b"Bearer sixteen-characters", "Host": b"127.0.0.1", "Content-Type": b"application/json;"}


def headers(**always: str) -> Iterator[bytes]:
    """Yield the headers of requests, each with one that is odd; `always` are in all of them, unless it is odd."""
    for name in READ:
        usual = {"Host": "127.0.0.1", **{key.replace("_", "-").title(): value for key, value in always.items()}}
        usual.pop(name, None)
        lines = b"".join(f"{key}: {value}\r\n".encode() for key, value in usual.items())
        for odd in ODD:
            yield lines + f"{name}: ".encode() + _BEGINS.get(name, b"") + odd + b"\r\n"


async def status(port: int, method: str, path: str, lines: bytes) -> int:
    """Send a request with the body `{}` to a server of this machine; return the status, 0 where it only hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        rest = b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"
        writer.write(f"{method} {path} HTTP/1.1\r\n".encode() + lines + rest)
        answer = await reader.readline()
    except ConnectionError:
        return 0
    finally:
        writer.close()
    return int(answer.split()[1]) if answer else 0
