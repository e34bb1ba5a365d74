#!/usr/bin/python
# MIT, see LICENSE; compatible with the GNU General Public License, version 3.
"""Ansible module: before a play makes something, it records what of it is not there yet, so that this can be removed.

What was there before the first play belongs to the machine and is never recorded. The file may be given to a play by
`-e @FILE`: it has the variables of the play that are needed to stop what it made, and `osrdyne_made`.
"""

from __future__ import annotations

DOCUMENTATION = """
module: osrdyne_made
short_description: Records what a play is about to make
description: Records the directories, files and accounts that are not there yet, and keeps what it recorded before.
options:
  file: {description: The record., type: path, required: true}
  paths: {description: Directories and files that the play makes., type: list, elements: path, required: true}
  accounts: {description: Accounts that it makes., type: list, elements: str, required: true}
  variables: {description: Variables of the play; no secrets., type: dict, required: true}
attributes:
  check_mode: {support: full, description: "It says what it would change, and changes nothing."}
  diff_mode: {support: full, description: "It shows the record before and after."}
author: The osrdyne authors (@osrdyne)
"""
EXAMPLES = """
- name: Record what is made
  osrdyne.pool.osrdyne_made:
    file: /var/lib/osrdyne/made/core.json
    paths: [/etc/osrdyne/core]
    accounts: []
    variables: {}
"""
RETURN = """
made: {description: The paths and accounts that are recorded., type: dict, returned: always}
"""

import json
import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "file": {"type": "path", "required": True},
            "paths": {"type": "list", "elements": "path", "required": True},
            "accounts": {"type": "list", "elements": "str", "required": True},
            "variables": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    file: str = module.params["file"]
    os.umask(0o022)  # others go through these folders, whatever the umask of who runs the play
    try:
        before = read(file)
        after = record(before, module.params["paths"], module.params["accounts"], module.params["variables"])
        if after != before and not module.check_mode:
            write(file, after)
    except OSError as error:
        module.fail_json(msg=f"what is made cannot be recorded in {file}: {error}; give another file")
    diff = {"before_header": file, "after_header": file, "before": text_of(before), "after": text_of(after)}
    shown = {"diff": diff} if module._diff else {}
    module.exit_json(changed=after != before, made=after["osrdyne_made"], **shown)


def record(before: dict[str, Any], paths: list[str], accounts: list[str], variables: dict[str, Any]) -> dict[str, Any]:
    """What is recorded: what it was before, and what is to be made and not there."""
    made = before.get("osrdyne_made", {"paths": [], "accounts": []})
    return {
        **variables,
        "osrdyne_made": {
            "paths": sorted({*made["paths"], *(path for path in paths if not os.path.lexists(path))}),
            "accounts": sorted({*made["accounts"], *(name for name in accounts if not is_known(name))}),
        },
    }


def is_known(account: str) -> bool:
    """Whether there is such an account: by its name, as a directory service may not list what it has."""
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True


def read(file: str) -> dict[str, Any]:
    """What an earlier play recorded."""
    try:
        with open(file) as opened:
            found: dict[str, Any] = json.load(opened)
    except FileNotFoundError:
        return {}
    return found


def text_of(recorded: dict[str, Any]) -> str:
    """A record as it is written."""
    return json.dumps(recorded, indent=1) + "\n" if recorded else ""


def write(file: str, text: dict[str, Any]) -> None:
    """Write by rename, so that the record is whole."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    fresh = f"{file}.new"
    with open(fresh, "w") as opened:
        opened.write(text_of(text))
    os.chmod(fresh, 0o644)
    os.replace(fresh, file)


if __name__ == "__main__":
    main()
