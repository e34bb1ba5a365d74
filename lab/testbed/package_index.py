"""An index of packages on this machine, as pip and uv read it: a folder for each package, over HTTP."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name


class _Quiet(SimpleHTTPRequestHandler):
    """Lists folders, which is the page that an index has for a package."""

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def serve(files: Path, place: Path) -> Iterator[str]:
    """Serve wheels and sdists of a folder from an empty one; yield the address of the index."""
    for file in files.iterdir():
        folder = place / canonicalize_name(file.name.split("-")[0])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).symlink_to(file)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(place)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
