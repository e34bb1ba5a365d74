"""Waits until a process that was started is ready, and ends with an error that says what to do where it is not.

The answer at the port counts only where that very process listens there: another program may have the port. Asks for
the process at each look, because systemd starts one that ended again. Standard library only: it runs on the managed
machine.
"""

from __future__ import annotations

import argparse
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

#: Seconds between two looks.
PAUSE_SECONDS = 0.5
#: Seconds for one answer.
TIMEOUT_SECONDS = 10.0
#: Seconds before a process counts as ended: its number may not be in the file yet.
START_SECONDS = 3.0
#: State of a socket that listens, as /proc/net/tcp has it.
LISTENS = "0A"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--name", default="daemon", help="of the process, in messages")
    parser.add_argument("--host", default="127.0.0.1", help="where it is asked")
    parser.add_argument("--scheme", choices=("http", "https", "tcp"), default="http", help="tcp: to listen is enough")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--pid-file", type=Path, help="of a process in the background; one that ended stays so")
    which.add_argument("--unit", help="of systemd, which starts a process that ended again")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds")
    given = parser.parse_args()
    started = time.monotonic()
    while True:
        problem, final = look(given, process_of(given.pid_file, given.unit))
        waited = time.monotonic() - started
        if not problem:
            return
        if waited > given.patience or (final and waited > START_SECONDS):
            sys.exit(problem)
        time.sleep(PAUSE_SECONDS)


def look(given: argparse.Namespace, process: int) -> tuple[str, bool]:
    """What keeps the process from being ready, "" for nothing, and whether waiting longer is of no use."""
    port, name = given.port, given.name
    alive, listening = is_alive(process), listeners(port)
    others = {other for other in listening if other != process}
    if alive and process in listening:
        return answer(given), False
    if others:
        names = " and ".join(
            f"process {other} ({command(other)})" if other else "a process" for other in sorted(others)
        )
        problem = f"Port {port} belongs to {names}, and not to the {name}. Stop that process, or choose another port"
        # It ends by itself, and its last words say why.
        return problem, not alive
    if not alive:
        return f"The {name} has ended. Nothing listens at port {port}", given.unit is None
    return f"Nothing listens at port {port}. The {name} runs as process {process} ({command(process)})", False


def process_of(pid_file: Path | None, unit: str | None) -> int:
    """Number of the process, 0 for none."""
    try:
        if pid_file is not None:
            return int(pid_file.read_text())
        shown = subprocess.run(
            ["systemctl", "show", "--property=MainPID", "--value", str(unit)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return int(shown.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def listeners(port: int) -> set[int]:
    """Numbers of the processes that listen at a TCP port; 0 for one that cannot be seen from here."""
    sockets = {f"socket:[{inode}]" for inode in listening_sockets(port)}
    if not sockets:
        return set()
    found = {process for process in processes() if sockets & set(open_files(process))}
    return found or {0}


def listening_sockets(port: int) -> list[str]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        except OSError:
            continue
        found += [row[9] for row in rows if row[3] == LISTENS and int(row[1].rpartition(":")[2], 16) == port]
    return found


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def open_files(process: int) -> list[str]:
    """What a process has open; nothing where that cannot be seen."""
    try:
        return links(process)
    except PermissionError:
        return links_as_owner(process) if os.geteuid() == 0 else []
    except OSError:
        return []


def links_as_owner(process: int) -> list[str]:
    """The same with the rights of the process's owner: in a container, root may have fewer (no CAP_SYS_PTRACE)."""
    group = os.getegid()
    try:
        owner = os.stat(f"/proc/{process}")
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        return links(process)
    except OSError:
        return []
    finally:
        os.seteuid(0)
        os.setegid(group)


def links(process: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except FileNotFoundError:
            continue
    return found


def command(process: int) -> str:
    """Name of the program of a process: its arguments may hold a password."""
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return "gone"


def answer(given: argparse.Namespace) -> str:
    """What the process says in place of being ready, "" where it is."""
    if given.scheme == "tcp":
        return ""
    # Who answers is known by its process; the names in its certificate do not matter here.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting))
    host = f"[{given.host}]" if ":" in given.host else given.host
    try:
        with opener.open(f"{given.scheme}://{host}:{given.port}/readyz", timeout=TIMEOUT_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return f"The {given.name} runs and is not ready: {error.read(500).decode(errors='replace').strip()}"
    except OSError as error:
        return f"The {given.name} listens at port {given.port} and does not answer: {error}"


if __name__ == "__main__":
    main()
