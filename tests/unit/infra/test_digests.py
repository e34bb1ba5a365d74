"""Which images of a stack have no digest."""

from __future__ import annotations

import json

from osrdyne_infra.cluster import digests

PINNED = f"registry.example/osrdyne:0.1.0@sha256:{'0' * 64}"


def test_images_without_a_digest_are_named_wherever_they_stand() -> None:
    raw = {
        "osrdyne:vhost": "core",
        "osrdyne:kubernetes": json.dumps({"daemon": {"image": PINNED}, "namespace": "osrdyne"}),
        "osrdyne:workers": json.dumps({"core": {"image": "registry.example/core-worker:1.4"}}),
        "osrdyne:relay": json.dumps({"redis": {"image": "redis:7.4"}, "pools": ["core"], "image": ""}),
    }
    said = digests.warning(raw)
    assert said is not None
    assert said.startswith("no digest: redis:7.4, registry.example/core-worker:1.4. ")


def test_there_is_no_warning_where_each_image_has_a_digest() -> None:
    assert digests.warning({"osrdyne:kubernetes": json.dumps({"daemon": {"image": PINNED}})}) is None


def test_what_other_programs_are_given_is_not_looked_at() -> None:
    assert digests.warning({"website:front": json.dumps({"image": "nginx:1"})}) is None
