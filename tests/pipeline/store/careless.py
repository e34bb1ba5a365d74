"""A store that takes every write, whatever the write is to be compared with: an S3 server that ignores conditions."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import obstore
from obstore.store import S3Store

from testbed.s3.server import BUCKET, S3Server


@contextmanager
def careless(server: S3Server, ignored: Collection[str]) -> Iterator[str]:
    """Give the address of a proxy before the server, which does without the headers that it is to ignore.

    A request is signed with its headers. So a write on a condition is not handed on, but written by the proxy.
    """
    behind = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        access_key_id=server.access_key_file.read_text().strip(),
        secret_access_key=server.secret_key_file.read_text().strip(),
        client_options={"allow_http": True},
    )

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command == "PUT" and any(name in self.headers for name in ignored):
                name = unquote(self.path.partition("?")[0]).removeprefix(f"/{BUCKET}/")
                tag = obstore.put(behind, name, body, use_multipart=False)["e_tag"]
                self._say(200, {"ETag": str(tag)}, b"")
                return
            # The name of the host is signed, too.
            there = http.client.HTTPConnection(urlsplit(server.endpoint).netloc)
            there.request(self.command, self.path, body, dict(self.headers))
            found = there.getresponse()
            headers = {name: value for name, value in found.getheaders() if name != "Transfer-Encoding"}
            self._say(found.status, headers, found.read())

        def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join()
