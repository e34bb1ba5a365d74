"""How the scripts in this folder come by the superuser's rights, and what they say where they cannot.

Root needs nothing. Any other user needs sudo, which may ask for a password: nothing here waits for one that
cannot be typed. Standard library only, and no syntax newer than Python 3.8: see steps.py.
"""

import os
import shutil
import subprocess
import sys

import steps


def is_root() -> bool:
    """True for root."""
    return os.geteuid() == 0


def asks() -> bool:
    """True where sudo wants a password. Ends the script where there is no sudo.

    A password that sudo remembers (-k: as if it did not) is remembered for one terminal; what starts a session of its
    own is asked again.
    """
    if not shutil.which("sudo"):
        steps.stop("this needs root or sudo, and there is no sudo here: run it as root")
    command = ["sudo", "-k", "-n", "true"]
    return bool(subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode)


def prefix(why: str) -> "list[str]":
    """What goes before a command that needs root. Where sudo wants a password, it is asked for now, once."""
    if is_root():
        return []
    if asks():
        stop_without_terminal(why)
        print(f"{why}: sudo wants your password", flush=True)
        if subprocess.run(["sudo", "-v"], check=False).returncode:
            steps.stop(f"{why}: sudo did not take the password")
        return ["sudo"]
    return ["sudo", "-n"]


def stop_without_terminal(why: str) -> None:
    """End the script where there is no terminal at which to ask for a password."""
    if not sys.stdin.isatty():
        steps.stop(
            f"{why}: sudo wants a password and there is no terminal to ask for it; "
            "run this at a terminal, or as root, or allow it without a password (NOPASSWD in sudoers)"
        )


def stop_where_asked(what: str, target: str) -> None:
    """End the script where sudo wants a password at all: for what starts many commands, in sessions of their own.

    `target` is that of `make`.
    """
    if not is_root() and asks():
        steps.stop(
            f"{what} needs root, or a sudo that asks for no password, and this one does; run it as root: "
            f"sudo make {target}; or allow it (NOPASSWD in sudoers). The unit tests need neither: "
            ".venv/bin/python tools/run_tests.py unit"
        )
