"""`make up` and `make down`: run a playbook of this project, with the superuser's rights got in the way that fits.

`tools/play.py dev` runs playbooks/dev.yml; what follows the name goes to ansible-playbook. Root needs nothing.
Anybody else needs sudo: without a password where sudo wants none, else with one that is asked for once.
"""

import os
import shutil
import subprocess
import sys

import steps


def rights() -> list[str]:
    """The arguments by which ansible-playbook becomes the superuser; ends the script where nothing can."""
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        steps.stop("needs root or sudo, and there is no sudo here: run it as root")
    # -k: a password that sudo remembers is remembered for this terminal, and Ansible's tasks run without it.
    free = subprocess.run(
        ["sudo", "-k", "-n", "true"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    if free.returncode == 0:
        return []
    if not sys.stdin.isatty():
        steps.stop("sudo wants a password and there is no terminal to ask for it: run it as root, or at a terminal")
    print("sudo wants your password here; Ansible, which needs it, calls it the BECOME password", flush=True)
    return ["--ask-become-pass"]


def main() -> None:
    """Run the playbook; end as it ends."""
    name, *arguments = sys.argv[1:]
    command = ["ansible-playbook", *rights(), f"playbooks/{name}.yml", *arguments]
    # Ansible refuses to run in a locale that the machine does not have, as one passed on by ssh often is.
    env = steps.environment(LC_ALL="C.UTF-8")
    try:
        sys.exit(subprocess.run(command, cwd=steps.ROOT, env=env, check=False).returncode)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
