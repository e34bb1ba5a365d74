#!/usr/bin/python
# MIT, see LICENSE; compatible with the GNU General Public License, version 3.
"""Ansible module: writes several small files that hold credentials, in one step.

A loop over `ansible.builtin.copy` starts Python twice for each file, which made these files a third of a play. A file
is replaced by a rename, so that no program reads a part of it. In check mode nothing is written.
"""

from __future__ import annotations

DOCUMENTATION = """
module: osrdyne_files
short_description: Writes several small files at once
description: Each file has its content and its owner, mode 0600, and is there whole or not at all.
options:
  directory: {description: Where the files are; it must be there., type: path, required: true}
  files:
    description: What is written. The play must set no_log where contents are secret.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name of the file in the directory., type: str, required: true}
      content: {description: Its text., type: str, required: true}
      owner: {description: Account that may read it., type: str, required: true}
attributes:
  check_mode: {support: full, description: "It says what it would change, and changes nothing."}
  diff_mode: {support: full, description: "It names each file that differs, and never shows its content."}
author: The osrdyne authors (@osrdyne)
"""
EXAMPLES = """
- name: Write each role's broker address
  osrdyne.pool.osrdyne_files:
    directory: /etc/osrdyne/core
    files:
      - {name: client.uri, content: "{{ client_address }}", owner: osrdyne}
  no_log: true
"""
RETURN = """
written: {description: Names of the files that differed., type: list, elements: str, returned: always}
"""

import contextlib
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

FILE = {name: {"type": "str", "required": True} for name in ("name", "content", "owner")}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "dict", "required": True, "options": FILE},
        },
        supports_check_mode=True,
    )
    directory: str = module.params["directory"]
    written, diffs = [], []
    for file in module.params["files"]:
        path = os.path.join(directory, file["name"])
        try:
            diff: dict[str, Any] = {"before_header": path, "after_header": path, "before": {}, "after": {}}
            if ensure(module, path, file["content"].encode(), file["owner"], diff):
                written.append(file["name"])
                diffs.append(diff)
        except OSError as error:
            module.fail_json(msg=f"{path} cannot be written: {error}", written=written)
    module.exit_json(changed=bool(written), written=written, **({"diff": diffs} if module._diff else {}))


def ensure(module: AnsibleModule, path: str, content: bytes, owner: str, diff: dict[str, Any]) -> bool:
    """Returns whether the file's content, owner or mode had to change; `diff` then gets what, and never the content."""
    wanted = module.load_file_common_arguments({"owner": owner, "mode": 0o600}, path)
    found = read(path)
    differs = found != content
    if differs:
        diff["before"]["content"] = "none" if found is None else "another"
        diff["after"]["content"] = "as it is wanted"
    if not module.check_mode:
        # What a run that was killed left. It is a copy, so that no change is said.
        discard(fresh_name(path))
    elif differs:
        return True
    if differs:
        write(module, path, content, wanted)
    return bool(module.set_fs_attributes_if_different(wanted, differs, diff))


def read(path: str) -> bytes | None:
    """What a file holds, or None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(module: AnsibleModule, path: str, content: bytes, wanted: dict[str, Any]) -> None:
    """Writes by rename. The owner is set before, so that the file is never there with another one."""
    fresh = fresh_name(path)
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        module.set_fs_attributes_if_different({**wanted, "path": fresh}, False)
        os.replace(fresh, path)
    except BaseException:
        discard(fresh)
        raise


def fresh_name(path: str) -> str:
    """What a file is called until it is whole: one name for each, so that another run finds it."""
    return f"{path}.new"


def discard(path: str) -> None:
    """Remove a file, or a link, that may not be there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


if __name__ == "__main__":
    main()
