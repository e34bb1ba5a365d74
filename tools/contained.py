"""Run a command so that nothing it leaves behind goes unnoticed: `contained.py FOLDER COMMAND...`.

FOLDER becomes the command's place for temporary files. When the command has ended, everything it started must be
gone: processes (also those that were detached from their parents), mounts and files below FOLDER, and containers
whose name starts with FOLDER's. What is still there after a moment is named on standard output and removed, and the
exit code is then LEFT, unless the command itself failed. Ends with the command when its own parent ends.
"""

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Exit code of a command that succeeded and left something behind.
LEFT = 90
#: How a line begins that names what was left.
LEFT_BEHIND = "left behind: "
#: Seconds for what is already ending, such as a broker whose owner has just closed its input. It waits no longer than
#: that takes.
GRACE_SECONDS = 60.0
#: In FOLDER, what may stay in it: the folders of pytest's `tmp_path`.
PYTEST = "pytest-of-"
#: Variable that names the run; what is started outside our process tree (containers) carries it in its name.
MARK = "OSRDYNE_TEST_RUN"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def parents() -> dict[int, int]:
    """The parent of every process of the machine that has not ended."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                found[int(entry.name)] = int(parent)
    return found


def descendants(of: int) -> list[int]:
    """All processes below a process, at any depth."""
    parent_of, found = parents(), [of]
    for ancestor in found:
        found += [pid for pid, parent in parent_of.items() if parent == ancestor]
    return found[1:]


def command_line(pid: int) -> str:
    """What a process was started as; "" when it has ended meanwhile."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace").strip()[:200]


def reap() -> None:
    """Take note of the ends of processes that became ours when their parents ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def mounts(folder: Path) -> list[str]:
    """Mount points below a folder, innermost last."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return sorted(point for point in points if point.startswith(f"{folder}/"))


def containers(mark: str) -> list[str]:
    """Names of the containers of a run, also stopped ones, in the engine that `docker` speaks to."""
    if not shutil.which("docker"):
        return []
    listed = subprocess.run(
        ["docker", "ps", "--all", "--filter", f"name={mark}", "--format", "{{.Names}}"],
        check=False,
        capture_output=True,
        text=True,
    )
    return listed.stdout.split()


def end_processes() -> list[str]:
    """What still runs below us after the grace time; it is killed."""
    deadline = time.monotonic() + GRACE_SECONDS
    reap()
    while descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.05)
        reap()
    left = []
    for pid in descendants(os.getpid()):
        left.append(f"process {pid}: {command_line(pid)}")
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return left


def leftovers(folder: Path) -> list[str]:
    """Remove what a command has left, and say what that was."""
    left = end_processes()
    for point in reversed(mounts(folder)):
        left.append(f"mount: {point}")
        subprocess.run(["umount", "--lazy", point], check=False)
    for name in containers(folder.name):
        left.append(f"container: {name}")
        subprocess.run(["docker", "rm", "--force", name], check=False, capture_output=True)
    left += [described(path) for path in sorted(folder.iterdir()) if not path.name.startswith(PYTEST)]
    return left


def described(path: Path) -> str:
    """A file that was left, and for a folder, the first of the files in it, which show whose it is."""
    if not path.is_dir():
        return f"file: {path}"
    inside = [str(inner.relative_to(path)) for inner in itertools.islice(path.rglob("*"), 8)]
    return f"folder: {path}, with {', '.join(inside) or 'nothing in it'}"


def run(folder: Path, command: list[str]) -> int:
    """Run the command to its end and return its exit code."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    environment = {**os.environ, "TMPDIR": str(folder), MARK: folder.name}
    # A handler, unlike SIG_IGN, is not inherited. Ctrl-C reaches the command as well, which ends in good order.
    signal.signal(signal.SIGINT, lambda *_: None)
    child = os.posix_spawnp(command[0], command, environment)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGINT))
    while True:
        pid, status = os.wait()
        if pid == child:
            signal.signal(signal.SIGTERM, lambda *_: None)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> None:
    """Run what the arguments say."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    code = run(folder, command)
    left = leftovers(folder)
    for leftover in left:
        print(f"{LEFT_BEHIND}{leftover}", flush=True)
    sys.exit(code or (LEFT if left else 0))


if __name__ == "__main__":
    main()
