"""Makes the images of a release: the Dockerfiles, built by the Docker engine of this machine, as files that two builds
make alike.

An engine puts the times of a build into what it makes. Here the layers above the base get the time of the release's
commit, and the rest of an image is written again without what depends on the engine. A file is an archive of OCI, which
`docker load` reads, too.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import packing
import steps

_GZIP = b"\x1f\x8b"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG, _MANIFEST = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.manifest.v1+json"
#: What is kept of what an engine says of an image; the rest is about that engine.
_KEPT = ("User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Labels", "Healthcheck")


@dataclass(frozen=True)
class Image:
    """An image of a release: its name, its Dockerfile, and where it has the bill of what it consists of."""

    name: str
    file: str
    bill: str


IMAGES = (
    Image("osrdyne", "Dockerfile", "opt/osrdyne/sbom.cdx.json"),
    Image("osrdyne-airports", "examples/airports/Dockerfile", "opt/airports/sbom.cdx.json"),
)


@dataclass(frozen=True)
class Builder:
    """An engine, and the base of the images."""

    base: str
    #: More words of `docker build`.
    options: tuple[str, ...] = ()
    #: The variables of `docker`; None for those of this process.
    environment: dict[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, tree: Path, base: str, **more: Any) -> Builder:
        """Return that with a base, which is by default the one that the Dockerfiles in a tree name."""
        named = re.search(r"^ARG BASE=(\S+)", (tree / IMAGES[0].file).read_text(), re.MULTILINE)
        assert named
        return cls(base or named[1], **more)

    def check(self) -> None:
        """Have the base. Ends the script where there is no engine, or no base."""
        without = "or leave the images out: make release VERSION=... IMAGES=no"
        try:
            self._docker("version", "--format", "{{.Server.Version}}")
        except (OSError, subprocess.CalledProcessError) as error:
            steps.stop(f"no Docker engine answers, which builds the images: {_why(error)}; start one, {without}")
        if not self._has_base():
            try:
                self._docker("pull", "--quiet", self.base)
            except subprocess.CalledProcessError as error:
                steps.stop(
                    f"the base image {self.base} is not there, and cannot be pulled: {_why(error)}; name one that the "
                    f"engine has: make release VERSION=... BASE=IMAGE, {without}"
                )

    def _has_base(self) -> bool:
        try:
            self._docker("image", "inspect", self.base)
        except subprocess.CalledProcessError:
            return False
        return True

    @contextmanager
    def built(self, tree: Path, image: Image) -> Iterator[str]:
        """Build an image, from nothing that an earlier build has left; yield its name in the engine."""
        name = f"osrdyne-release:{secrets.token_hex(6)}"
        where = ["--file", str(tree / image.file), str(tree)]
        self._docker("build", "--no-cache", "--build-arg", f"BASE={self.base}", *self.options, "--tag", name, *where)
        try:
            yield name
        finally:
            self._docker("image", "rm", "--force", name)

    def save(self, name: str, file: Path) -> int:
        """Write an image into a file; return how many of its layers are those of its base."""
        self._docker("save", "--output", str(file), name)
        own, base = (json.loads(self._docker("image", "inspect", image))[0] for image in (name, self.base))
        below: list[str] = base["RootFS"]["Layers"]
        assert own["RootFS"]["Layers"][: len(below)] == below, f"{name} is not made on {self.base}"
        return len(below)

    def _docker(self, *words: str) -> str:
        return subprocess.run(
            ["docker", *words], env=self.environment, check=True, capture_output=True, text=True
        ).stdout


def _why(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, OSError):
        return f"docker: {error.strerror}"
    return str(error.stderr).strip().rpartition("\n")[2]


def make(builder: Builder, tree: Path, target: Path, version: str, epoch: int) -> None:
    """Write each image into a folder, with its bill of materials. Raises CalledProcessError where it is not built."""
    target.mkdir(parents=True)
    for image in IMAGES:
        with builder.built(tree, image) as name:
            saved = target / "saved.tar"
            below = builder.save(name, saved)
        bill = repack(
            saved, below, target / f"{image.name}-{version}.tar.gz", f"{image.name}:{version}", epoch, image.bill
        )
        saved.unlink()
        (target / f"{image.name}-{version}.cdx.json").write_bytes(bill)


def repack(saved: Path, below: int, target: Path, name: str, epoch: int, bill: str) -> bytes:
    """Write what an engine saved as an archive of OCI, compressed; return a file of the uppermost layer that has it.

    The first `below` layers stay as they are. Those above get one time for all that is in them.
    """
    work = target.with_suffix(".blobs")
    (work / "blobs/sha256").mkdir(parents=True)
    found = b""
    with tarfile.open(saved) as archive:
        (described,) = json.loads(_read(archive, "manifest.json"))
        config = json.loads(_read(archive, described["Config"]))
        layers = []
        for number, path in enumerate(described["Layers"]):
            part = work / "part"
            with _opened(archive, path) as layer, part.open("wb") as out:
                if number < below:
                    shutil.copyfileobj(layer, out)
                else:
                    found = _with_one_time(layer, out, epoch, bill) or found
            layers.append(_keep(work, part, _LAYER))
    assert found, f"{name} has no {bill}"
    _write_rest(work, config, layers, name, epoch)
    packing.pack(target, work, ["oci-layout", "index.json", "manifest.json", "blobs"], epoch)
    shutil.rmtree(work)
    return found


def _read(archive: tarfile.TarFile, path: str) -> bytes:
    with _opened(archive, path) as file:
        return file.read()


@contextmanager
def _opened(archive: tarfile.TarFile, path: str) -> Iterator[IO[bytes]]:
    """Open a file of an archive; what an engine compressed is read as it was before."""
    file = archive.extractfile(path)
    assert file is not None
    compressed = file.read(2) == _GZIP
    file.seek(0)
    with file, gzip.open(file) if compressed else nullcontext(file) as content:
        yield cast(IO[bytes], content)


def _with_one_time(layer: IO[bytes], out: IO[bytes], epoch: int, wanted: str) -> bytes:
    """Copy a layer, with its files in the order of their names; return one of them, or nothing."""
    found = b""
    with tarfile.open(fileobj=layer) as before, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as after:
        # A hard link comes after what it names.
        for member in sorted(before.getmembers(), key=lambda member: (member.islnk(), member.name)):
            member.mtime = epoch
            member.uname = member.gname = ""
            member.pax_headers = {
                key: text for key, text in member.pax_headers.items() if key.startswith("SCHILY.xattr.")
            }
            content = before.extractfile(member) if member.isreg() else None
            if content is not None and member.name == wanted:
                found = content.read()
                content = io.BytesIO(found)
            after.addfile(member, content)
    return found


def _keep(work: Path, file: Path, kind: str) -> dict[str, Any]:
    """Give a file the name of its content; return what a manifest says of it."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    size = file.stat().st_size
    file.replace(work / "blobs/sha256" / digest)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _keep_json(work: Path, value: object, kind: str) -> dict[str, Any]:
    part = work / "part"
    part.write_text(json.dumps(value, sort_keys=True, separators=(",", ":")))
    return _keep(work, part, kind)


def _write_rest(work: Path, config: dict[str, Any], layers: list[dict[str, Any]], name: str, epoch: int) -> None:
    """Write what is neither layer nor archive: what the image is, for a registry, and for `docker load`."""
    about = {
        "architecture": config["architecture"],
        "os": config["os"],
        "created": packing.timestamp(epoch),
        "config": {key: config["config"][key] for key in _KEPT if config["config"].get(key)},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    kept = _keep_json(work, about, _CONFIG)
    manifest = _keep_json(
        work, {"schemaVersion": 2, "mediaType": _MANIFEST, "config": kept, "layers": layers}, _MANIFEST
    )
    manifest["annotations"] = {"org.opencontainers.image.ref.name": name.partition(":")[2]}
    paths = [f"blobs/{blob['digest'].replace(':', '/')}" for blob in (kept, *layers)]
    for file, value in (
        ("oci-layout", {"imageLayoutVersion": "1.0.0"}),
        ("index.json", {"schemaVersion": 2, "manifests": [manifest]}),
        ("manifest.json", [{"Config": paths[0], "RepoTags": [name], "Layers": paths[1:]}]),
    ):
        (work / file).write_text(json.dumps(value, sort_keys=True))
