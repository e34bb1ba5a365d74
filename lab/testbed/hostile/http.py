"""Requests of HTTP as bytes, whole or broken, to paths that a server has or has not."""

from __future__ import annotations

import json
import string
from urllib.parse import quote

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


#: Any value of JSON, among them what a field of a document may nearly be.
_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**400]),
        st.floats(allow_nan=False, allow_infinity=False),
        NAMES,
        st.sampled_from(["\ud800", "\0", "NaN"]),
        SIZES.map(lambda size: "v" * size),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


#: The last header of a client that waits for the answer and sends nothing more.
WAITS = ("Connection", "close")


def documents(known: dict[str, list[object]]) -> Bytes:
    """Documents of JSON with these fields, each with one of its right values or with any other."""
    right = {name: st.sampled_from(values) for name, values in known.items()}
    nearly = {name: st.sampled_from(values) | _VALUES for name, values in known.items()}
    whole = st.fixed_dictionaries(right) | st.fixed_dictionaries(nearly) | st.fixed_dictionaries({}, optional=nearly)
    return whole.map(lambda found: json.dumps(found).encode())


def posts(path: str, bodies: Bytes, *fixed: tuple[str, str]) -> Bytes:
    """Requests that are wrong in nothing but their bodies."""
    headers = [("Host", "localhost"), *fixed, WAITS]
    return bodies.map(lambda body: _request("POST", path, headers, body, framed=True))


def gets(path: str, names: list[str], *fixed: tuple[str, str]) -> Bytes:
    """Requests that are wrong in nothing but the values of these parameters."""
    values = NAMES.map(quote) | st.sampled_from(
        ["1", "0", "-1", "nan", "1e999", str(2**63 - 1), str(2**63), "true", "%00", "%ff", "%ud800", "9" * 5000]
    )
    pairs = st.lists(st.builds("{}={}".format, st.sampled_from(names), values), max_size=3)
    headers = [("Host", "localhost"), *fixed, WAITS]
    return pairs.map(lambda found: _request("GET", f"{path}?{'&'.join(found)}", headers, b"", framed=False))


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
