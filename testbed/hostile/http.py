"""Requests of HTTP as bytes, whole or broken, to paths that a server has or has not."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from testbed.hostile.chance import DEPTHS, HEADER_TEXTS, NAMES, SIZES, mutated

Bytes = st.SearchStrategy[bytes]

METHODS = st.sampled_from(["GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X"])
_ODD_PATHS = st.sampled_from(
    ["", "/", "//", "*", "/../etc/passwd", "/%00", "/%2e%2e/", "http://x/y", "/?" + "a=b&" * 2000]
)
_HEADERS = st.tuples(
    st.sampled_from(
        [
            *("Host", "Content-Length", "Transfer-Encoding", "Range", "Cookie", "Expect", "Upgrade", "Connection"),
            *("Content-Type", "Content-Encoding", "Accept-Encoding", "Authorization", "X-Forwarded-For", "If-Match"),
        ]
    )
    | st.text(string.ascii_letters + "-", max_size=20),
    HEADER_TEXTS
    | NAMES
    | SIZES.map(lambda size: "v" * size)
    | st.sampled_from(
        [
            *("0", "-1", "1", "99999999999999999999", "chunked", "chunked, chunked", "gzip", "websocket", "upgrade"),
            *("100-continue", "Bearer ", "Bearer x", "Basic eA==", "application/json", "bytes=0-18446744073709551616"),
        ]
    ),
)
_BODIES = st.one_of(
    st.binary(max_size=100),
    SIZES.map(bytes),
    st.sampled_from(
        [b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\nx\r\n", b"5;" + b"x" * 5000 + b"\r\nhello\r\n0\r\n\r\n"]
    ),
    DEPTHS.map(lambda depth: b"[" * depth + b"]" * depth),
    st.sampled_from(
        [b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a": "\\ud800"}', b"NaN", b'{"a": 1, "a": 2}']
    ),
)


def _request(method: str, path: str, headers: list[tuple[str, str]], body: bytes, framed: bool) -> bytes:
    lines = [*headers, ("Content-Length", str(len(body)))] if framed else headers
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines)
    return head.encode("utf-8", "replace") + b"\r\n" + body


def requests(paths: list[str], *fixed: tuple[str, str]) -> Bytes:
    """Requests for these paths with these headers, and for others. `fixed` may hold a token."""
    path = st.sampled_from(paths) | st.builds("{}/{}".format, st.sampled_from(paths), NAMES) | _ODD_PATHS
    whole = st.builds(
        _request,
        METHODS,
        path,
        st.lists(_HEADERS, max_size=3).map(lambda found: [("Host", "localhost"), *fixed, *found]),
        _BODIES | st.just(b""),
        st.booleans(),
    )
    plain = _request("GET", paths[0], [("Host", "localhost"), *fixed], b"", framed=True)
    return whole | mutated(plain) | st.binary(max_size=100)
