"""The files of images: what an engine saved twice becomes one file, and what an image consists of is written down."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import image_bill
import images
import release
import steps
from testbed.distributions import Wheels
from tests.unit.release.test_release import clone, origin

__all__ = ["clone", "origin"]

EPOCH = 1_700_000_000
BILL = "opt/it/sbom.cdx.json"


def layer(*names: str, made: int) -> bytes:
    """A layer with files in this order, which were made at this time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.mtime, member.uname = made, "builder"
            content = f"what is in {name}".encode()
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("a-link")
        link.type, link.linkname, link.mtime = tarfile.LNKTYPE, max(names), made
        archive.addfile(link)
    return out.getvalue()


def saved(file: Path, base: bytes, own: bytes, host: str) -> Path:
    """What `docker save` writes of an image that was made on a host."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": host,
        "container": host,
        "config": {"Hostname": host, "User": "65532:65532", "Cmd": ["it"], "Env": [], "Image": host},
        "history": [{"created": host}],
    }
    described = [{"Config": "c.json", "RepoTags": [f"{host}:latest"], "Layers": ["1/layer.tar", "2/layer.tar"]}]
    with tarfile.open(file, "w") as archive:
        for name, content in {
            "c.json": json.dumps(config).encode(),
            "1/layer.tar": base,
            "2/layer.tar": own,
            "manifest.json": json.dumps(described).encode(),
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def test_two_builds_of_an_image_give_the_same_file(tmp_path: Path) -> None:
    base = layer("etc/base", made=5)
    first = saved(tmp_path / "1.tar", base, layer(BILL, "opt/it/b", made=7), "one")
    second = saved(tmp_path / "2.tar", base, gzip.compress(layer("opt/it/b", BILL, made=8)), "two")
    files = []
    for number, archive in enumerate((first, second)):
        files.append(tmp_path / str(number) / "it-1.2.3.tar.gz")
        files[-1].parent.mkdir()
        found = images.repack(archive, 1, files[-1], "it:1.2.3", EPOCH, BILL)
        assert found == f"what is in {BILL}".encode()
        assert [*files[-1].parent.iterdir()] == [files[-1]]

    assert files[0].read_bytes() == files[1].read_bytes()
    blobs = read(files[0])
    of_base = f"blobs/sha256/{hashlib.sha256(base).hexdigest()}"
    assert blobs[of_base] == base
    (described,) = json.loads(blobs["manifest.json"])
    assert described["RepoTags"] == ["it:1.2.3"]
    assert described["Layers"][0] == of_base
    config = json.loads(blobs[described["Config"]])
    assert config["config"] == {"User": "65532:65532", "Cmd": ["it"]}
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert config["rootfs"]["diff_ids"] == [f"sha256:{Path(path).name}" for path in described["Layers"]]
    # The upper layer has one time, and the order of names
    with tarfile.open(fileobj=io.BytesIO(blobs[described["Layers"][1]])) as upper:
        assert [member.name for member in upper] == ["opt/it/b", BILL, "a-link"]
        assert {member.mtime for member in upper} == {EPOCH}
    # Each blob has the name of its content
    for name, content in blobs.items():
        if name.startswith("blobs/sha256/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def read(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {
            member.name: content.read()
            for member in archive
            if member.isfile() and (content := archive.extractfile(member)) is not None
        }


def test_a_release_without_an_engine_is_refused_before_its_commit(
    clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    head = release.git("rev-parse", "HEAD", root=clone)

    with pytest.raises(SystemExit, match=r"no Docker engine answers.*IMAGES=no"):
        release.main("98.7.6", clone)

    assert release.git("rev-parse", "HEAD", root=clone) == head
    assert release.git("status", "--porcelain", root=clone) == ""


def test_images_are_left_out_by_the_word_no_alone() -> None:
    assert release.make_images in release.chosen("")
    assert release.make_images not in release.chosen("no")
    with pytest.raises(SystemExit, match="IMAGES=false is not known"):
        release.chosen("false")


def test_both_dockerfiles_have_the_same_base_and_it_has_a_digest() -> None:
    bases = {images.Builder.of(steps.ROOT, "").base}
    for image in images.IMAGES:
        lines = (steps.ROOT / image.file).read_text().splitlines()
        bases |= {line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE=")}

    (base,) = bases
    assert "@sha256:" in base


def test_whatever_brings_rabbitmq_has_it_by_the_same_digest() -> None:
    named: dict[str, set[str]] = {}
    for file in steps.tracked(".yaml", ".yml"):
        for image in re.findall(r"\brabbitmq:\d[^\s\"'}]*", (steps.ROOT / file).read_text()):
            named.setdefault(image, set()).add(file)

    ((image, files),) = named.items()
    assert re.fullmatch(r"rabbitmq:4\.\d+\.\d+-management@sha256:[0-9a-f]{64}", image)
    assert files == {
        "examples/compose/compose.yaml",
        "infra/stacks/Pulumi.staging-broker.yaml",
        "roles/rabbitmq/defaults/main.yml",
        "roles/rabbitmq/meta/argument_specs.yml",
    }


def test_the_bill_of_an_image_names_packages_of_python_and_debian(wheels: Wheels, tmp_path: Path) -> None:
    made = wheels.install("osrdyne-worker", tmp_path / "made")
    status = tmp_path / "status"
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\nDescription: x\n more\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1:2\n\n"
        "Package: tzdata\nStatus: install ok installed\nArchitecture: all\nVersion: 1:2026a+x-0+deb13u1\n"
    )

    found = image_bill.document("it", made.place, "base:1@sha256:0", status)

    components = {component["bom-ref"]: component for component in found["components"]}
    assert found["metadata"]["component"]["version"] == components_version(components, "osrdyne-worker")
    assert {component["name"] for component in components.values()} >= {
        "osrdyne-amqp",
        "pika",
        "libc6",
        "tzdata",
        "cpython",
    }
    assert "gone" not in {component["name"] for component in components.values()}
    assert "pkg:deb/debian/tzdata@1%3A2026a%2Bx-0%2Bdeb13u1?arch=all" in components
    assert all(
        component.get("licenses")
        for component in components.values()
        if component["purl"].startswith("pkg:pypi/osrdyne")
    )
    assert found["dependencies"] == [{"ref": "image", "dependsOn": [*components]}]


def components_version(components: dict[str, dict[str, str]], name: str) -> str:
    (version,) = (component["version"] for component in components.values() if component["name"] == name)
    return version


def test_the_bill_of_an_image_needs_nothing_but_python(tmp_path: Path) -> None:
    # As in the Dockerfiles: beside nothing but its neighbour
    for name in ("image_bill.py", "cyclonedx.py"):
        (tmp_path / name).write_text((steps.ROOT / "tools" / name).read_text())
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import image_bill"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_the_worker_of_compose_is_the_one_that_osrdyne_new_writes() -> None:
    written = steps.ROOT / "daemon/osrdyne/commands/new_pool/worker.py"
    assert (steps.ROOT / "examples/compose/worker.py").read_text().endswith(f'"""\n\n{written.read_text()}')
