"""The Ansible collection as one file, equal for equal sources: `ansible-galaxy` writes times and any order into it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import operator
import subprocess
import tarfile
import tempfile
from pathlib import Path

import steps


def build(tree: Path, folder: Path, epoch: int) -> Path:
    """Make the collection of a tree into a folder; return its file. `epoch` is the time of all that is in it."""
    with tempfile.TemporaryDirectory() as made:
        command = ["ansible-galaxy", "collection", "build", str(tree), "--output-path", made]
        # No settings of the account say how it is built.
        settings = Path(made, "ansible.cfg")
        settings.touch()
        env = steps.environment(ANSIBLE_HOME=made, ANSIBLE_CONFIG=str(settings), LC_ALL="C.UTF-8")
        subprocess.run(command, cwd=made, env=env, check=True, capture_output=True, text=True)
        (file,) = Path(made).glob("*.tar.gz")
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / file.name
        target.write_bytes(_the_same_always(file, epoch))
    return target


def _the_same_always(file: Path, epoch: int) -> bytes:
    """Return the archive with its members in order, of one time, and a list of files that is in order, too."""
    with tarfile.open(file) as archive:
        held = {member.name: (member, archive.extractfile(member)) for member in archive}
        texts = {name: content.read() for name, (_, content) in held.items() if content}
    listed = json.loads(texts["FILES.json"])
    listed["files"].sort(key=operator.itemgetter("name"))
    texts["FILES.json"] = json.dumps(listed, indent=1).encode()
    manifest = json.loads(texts["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(texts["FILES.json"]).hexdigest()
    texts["MANIFEST.json"] = json.dumps(manifest, indent=1).encode()
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, (member, _) in sorted(held.items()):
            member.mtime, member.size = epoch, len(texts.get(name, b""))
            archive.addfile(member, io.BytesIO(texts[name]) if name in texts else None)
    return packed.getvalue()
