"""`make up` and `make down`: run a playbook of this project, with the superuser's rights got in the way that fits.

`tools/play.py dev` runs playbooks/dev.yml; what follows the name goes to ansible-playbook. Root needs nothing.
Any other user needs sudo: without a password where sudo wants none, else with one that is asked for once.
"""

import subprocess
import sys

import steps
import superuser
from osrdyne_runtime.console.streams import guarded


def rights() -> list[str]:
    """The arguments by which ansible-playbook becomes the superuser; ends the script where nothing can."""
    if superuser.is_root() or not superuser.asks():
        return []
    superuser.stop_without_terminal("the set-up of broker and daemon needs root")
    # Ansible's tasks run without this terminal, for which sudo may remember a password.
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
    with guarded("play"):
        main()
