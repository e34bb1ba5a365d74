#!/usr/bin/python
"""Ansible module: it makes passwords on the machine, and returns them only to a play with root's rights there.

One file a name, 0600 and root's, in a directory that is 0700. An existing password is kept. In check mode nothing is
written, and a name without a file gets a password that is thrown away.
"""

from __future__ import annotations

import os
import secrets

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: osrdyne_passwords
short_description: Makes passwords on the machine, once
description: Keeps one password a name in a file of its own, and returns all of them.
options:
  directory: {description: Where the files are., type: path, required: true}
  names: {description: Names of the passwords., type: list, elements: str, required: true}
author: osrdyne
"""
EXAMPLES = """
- name: Make passwords
  osrdyne_passwords: {directory: /etc/osrdyne/core/passwords, names: [core-client]}
  register: made
  no_log: true
"""
RETURN = """
passwords: {description: Password of each name., type: dict, returned: always}
"""


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
        changed, passwords = ensure(directory, module.params["names"], module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"passwords cannot be kept in {directory}: {error}; choose another directory")
    module.exit_json(changed=changed, passwords=passwords)


def ensure(directory: str, names: list[str], check: bool) -> tuple[bool, dict[str, str]]:
    """Returns whether any password had to be made, and all of them."""
    changed = False
    passwords: dict[str, str] = {}
    for name in names:
        path = os.path.join(directory, f"{name}.password")
        try:
            with open(path) as file:
                passwords[name] = file.read().strip()
        except FileNotFoundError:
            passwords[name] = secrets.token_urlsafe(24)
            changed = True
            if not check:
                write(directory, path, passwords[name])
    return changed, passwords


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
