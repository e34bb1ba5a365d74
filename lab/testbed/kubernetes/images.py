"""Images for the cluster, made without any registry: archives in the OCI image layout, for `ctr images import`.

The base is a Debian root file system with Python, packed once into the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.broker import run_tool
from testbed.kubernetes import building, golang

SUITE = "trixie"
PACKAGES = ("python3",)
#: Of no use to a container.
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "dev", "boot")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CREATED = "2020-01-01T00:00:00Z"


class ImageFailed(RuntimeError):
    """An image could not be made; the text says why."""


@dataclass(frozen=True)
class Blob:
    """A part of an image: small ones in memory, large ones in a file."""

    digest: str
    size: int
    content: bytes | Path

    @classmethod
    def of(cls, content: bytes | Path) -> Blob:
        with closing(_open(content)) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return cls(f"sha256:{digest}", stream.seek(0, os.SEEK_END), content)

    def described(self, media_type: str) -> dict[str, Any]:
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": self.digest, "size": self.size}


def base() -> Blob:
    """The layer with Debian and Python, packed on the first call on a machine (and made, which takes a minute)."""
    recipe = ["--suite", SUITE, "--name", "worker", "--packages", ",".join(PACKAGES)]
    return packed(Path(json.loads(run_tool("install", *recipe))["root"]))


def packed(root: Path) -> Blob:
    """The layer with a root file system, packed on the first call on a machine."""
    key = hashlib.sha256(" ".join((root.name, *LEFT_OUT)).encode()).hexdigest()[:12]
    folder = building.cache()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"base-{key}.tar"
    with (folder / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _pack(root, target)
    return Blob.of(target)


def layer(files: Mapping[str, bytes | Path], mode: int = 0o755) -> Blob:
    """A layer with these files, by absolute path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            _add(archive, path.lstrip("/"), content, mode)
    return Blob.of(packed.getvalue())


def write_archive(
    target: Path, name: str, layers: Sequence[Blob], command: Sequence[str], known: Iterable[str]
) -> None:
    """Writes an image's archive, without the parts whose digests the receiver knows."""
    config = {
        "architecture": golang.ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "created": CREATED,
        "config": {"Env": [PATH], "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        "history": [{"created": CREATED} for _ in layers],
    }
    config_blob = Blob.of(json.dumps(config).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config_blob.described("config.v1+json"),
        "layers": [layer.described("layer.v1.tar") for layer in layers],
    }
    manifest_blob = Blob.of(json.dumps(manifest).encode())
    entry = {**manifest_blob.described("manifest.v1+json"), "annotations": {"io.containerd.image.name": name}}
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for blob in (*layers, config_blob, manifest_blob):
            if blob.digest not in known:
                _add(archive, f"blobs/{blob.digest.replace(':', '/')}", blob.content)
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())


def _pack(root: Path, target: Path) -> None:
    excluded = [f"--exclude=./{path}/*" for path in LEFT_OUT]
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    part, name = tempfile.mkstemp(prefix="part-", dir=target.parent)
    try:
        with open(part, "wb") as file:
            command = [*superuser, "tar", "-c", *excluded, "-C", str(root), "."]
            done = subprocess.run(command, check=False, stdout=file, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise ImageFailed(f"{root} could not be packed: {done.stderr}")
        Path(name).rename(target)
    finally:
        Path(name).unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, path: str, content: bytes | Path, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content) if isinstance(content, bytes) else content.stat().st_size
    entry.mode = mode
    with closing(_open(content)) as stream:
        archive.addfile(entry, stream)


def _open(content: bytes | Path) -> io.BytesIO | io.BufferedReader:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
