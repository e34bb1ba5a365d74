"""What the playbook says of a daemon that does not get ready: it looks at the process, and not only at its port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import steps
from testbed.authority import Authority

SCRIPT = Path(steps.ROOT, "roles/service/files/wait_ready.py")
#: Answers everything with a status, at a port of the system's choice.
SERVER = """
import http.server, ssl, sys
class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[1]))
        self.end_headers()
        self.wfile.write(b"waiting: the broker is away")
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
if sys.argv[2:]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*sys.argv[2:])
    server.socket = tls.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def server(status: int, *certificate: str) -> Iterator[tuple[int, int]]:
    """Process and port of a server, by TLS where a certificate and its key are given."""
    words = [sys.executable, "-c", SERVER, str(status), *certificate]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:  # or a test that fails would wait for the server without an end
            process.kill()


def wait(directory: Path, port: int, process: int, patience: float = 60.0, *more: str) -> str:
    """What the script says of a process; "" where that is ready."""
    file = directory / "daemon.pid"
    file.write_text(f"{process}\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(port), "--pid-file", str(file), "--patience", str(patience), *more],
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr.strip()


def ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_a_daemon_that_answers_at_its_port_is_ready(tmp_path: Path) -> None:
    with server(200) as (process, port):
        assert wait(tmp_path, port, process) == ""


def test_the_answer_of_another_process_does_not_count_where_the_daemon_has_ended(tmp_path: Path) -> None:
    with server(200) as (process, port):
        said = wait(tmp_path, port, ended())

    assert said.startswith(f"Port {port} belongs to process {process} (")
    assert said.endswith("Stop that process, or choose another port")


def test_the_answer_of_another_process_does_not_count_where_the_daemon_lives(tmp_path: Path) -> None:
    with server(200) as (process, port):
        assert f"belongs to process {process} (" in wait(tmp_path, port, os.getpid(), patience=0.1)


def test_a_daemon_that_is_not_ready_says_why(tmp_path: Path) -> None:
    with server(503) as (process, port):
        said = wait(tmp_path, port, process, patience=0.1)

    assert said == "The daemon runs and is not ready: waiting: the broker is away"


def test_a_daemon_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket() as taken:  # so that no other process listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        assert wait(tmp_path, port, ended()) == f"The daemon has ended. Nothing listens at port {port}"


def test_where_to_listen_is_enough_nothing_is_asked(tmp_path: Path) -> None:
    with server(503) as (process, port):
        assert wait(tmp_path, port, process, 0.0, "--scheme", "tcp") == ""


def test_a_process_over_tls_is_asked_by_tls_and_called_by_its_name(tmp_path: Path) -> None:
    certificate = Authority(tmp_path / "ca").issue("server", addresses=["127.0.0.1"])
    files = str(certificate.certfile), str(certificate.keyfile)
    for status, expected in ((200, ""), (503, "The node runs and is not ready: waiting: the broker is away")):
        with server(status, *files) as (process, port):
            assert wait(tmp_path, port, process, 0.0, "--scheme", "https", "--name", "node") == expected
