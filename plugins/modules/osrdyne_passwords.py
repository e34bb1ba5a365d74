#!/usr/bin/python
# MIT, see LICENSE; compatible with the GNU General Public License, version 3.
"""Ansible module: it makes passwords on the machine, and returns them only to a play with root's rights there.

One file a name, 0600 and root's, in a directory that is 0700. An existing password is kept. In check mode nothing is
written, and a name without a file gets a password that is thrown away.
"""

from __future__ import annotations

DOCUMENTATION = """
module: osrdyne_passwords
short_description: Makes passwords on the machine, once
description: Keeps one password a name in a file of its own, and returns all of them.
options:
  directory: {description: Where the files are., type: path, required: true}
  names: {description: Names of the passwords., type: list, elements: str, required: true}
attributes:
  check_mode: {support: full, description: "It says what it would change, and changes nothing."}
  diff_mode: {support: full, description: "It shows for which names there is a password, and never the passwords."}
author: The osrdyne authors (@osrdyne)
"""
EXAMPLES = """
- name: Make passwords
  osrdyne.pool.osrdyne_passwords: {directory: /etc/osrdyne/core/passwords, names: [core-client]}
  register: made
  no_log: true
"""
RETURN = """
passwords: {description: Password of each name., type: dict, returned: always}
"""

import os
import secrets
from collections.abc import Iterable

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            # Names, not secrets; without no_log Ansible warns of the word in the parameter's module.
            "names": {"type": "list", "elements": "str", "required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    directory: str = module.params["directory"]
    try:
        made, passwords = ensure(directory, module.params["names"], module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"passwords cannot be kept in {directory}: {error}; choose another directory")
    kept = [name for name in passwords if name not in made]
    header = f"passwords in {directory}"
    diff = {"before_header": header, "after_header": header, "before": lines(kept), "after": lines(passwords)}
    module.exit_json(changed=bool(made), passwords=passwords, **({"diff": diff} if module._diff else {}))


def lines(names: Iterable[str]) -> str:
    """Names as a text that can be compared with another."""
    return "".join(f"{name}\n" for name in sorted(names))


def ensure(directory: str, names: list[str], check: bool) -> tuple[list[str], dict[str, str]]:
    """Returns the names of passwords that had to be made, and all passwords."""
    made = []
    passwords: dict[str, str] = {}
    for name in names:
        path = os.path.join(directory, f"{name}.password")
        try:
            with open(path) as file:
                passwords[name] = file.read().strip()
        except FileNotFoundError:
            passwords[name] = secrets.token_urlsafe(24)
            made.append(name)
            if not check:
                write(directory, path, passwords[name])
    return made, passwords


def write(directory: str, path: str, password: str) -> None:
    """Writes by rename, so that a password is there whole or not at all."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    os.chmod(directory, 0o700)
    fresh = f"{path}.new"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(password)
    os.replace(fresh, path)


if __name__ == "__main__":
    main()
