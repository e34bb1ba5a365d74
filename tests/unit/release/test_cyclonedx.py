"""Documents of CycloneDX, of which a release and each image have one."""

from __future__ import annotations

import cyclonedx


def test_what_the_document_is_about_and_what_it_consists_of_give_its_serial_number() -> None:
    def serial(base: str, version: str) -> str:
        about = {"type": "container", "name": "osrdyne", "version": base}
        parts = [cyclonedx.library("pika", version, cyclonedx.of_pypi("pika", version))]
        return str(cyclonedx.document(about, parts, [])["serialNumber"])

    assert serial("one", "1.3") == serial("one", "1.3")
    assert len({serial("one", "1.3"), serial("two", "1.3"), serial("one", "1.4")}) == 3
