"""Settings of the relay: what is unknown, missing or does not fit is an error that names it; secrets are in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.redis.client import RedisClient
from osrdyne_relay.settings import RelaySettings

URL = {"url": "redis://localhost:6379/0"}
S3 = {"endpoint": "https://s3.example.org", "bucket": "streams", "access_key_file": "id", "secret_key_file": "key"}


def test_durations_are_seconds_or_iso_8601() -> None:
    found = RelaySettings.from_mapping({"redis": URL, "timings": {"beat_every": "PT5S", "caller_gone_after": 30}})

    assert (found.timings.beat_every, found.timings.caller_gone_after) == (5.0, 30.0)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "relay.redis"),
        ({"redis": URL, "colour": 1}, "relay.colour"),
        ({"redis": {**URL, "pasword_file": "x"}}, "relay.redis.pasword_file"),
        ({"redis": {}}, "url_file"),
        ({"redis": {**URL, "url_file": "x"}}, "url.* is given twice, itself and as a file"),
        ({"redis": {"url": "redis://:hidden@localhost"}}, "url_file"),
        ({"redis": {**URL, "sentinels": ["a:1"]}}, "relay.redis.sentinels"),
        ({"redis": {**URL, "cluster": True}}, "relay.redis.cluster"),
        ({"redis": {**URL, "key_file": "x"}}, "certificate_file"),
        ({"redis": URL, "prefix": "a:b"}, "relay.prefix"),
        ({"redis": URL, "most_bytes": 1}, "relay.most_bytes"),
        ({"redis": URL, "timings": {"beat_every": 40}}, "server_gone_after"),
        ({"redis": URL, "timings": {"response_stays": 100}}, "response_stays"),
        ({"redis": URL, "timings": {"retry_for": "soon"}}, "relay.timings.retry_for"),
        ({"redis": URL, "streams": {"s3": S3, "directory": "d"}}, "not both"),
        (
            {"redis": URL, "streams": {"s3": {**S3, "endpoint": "https://id:hidden@s3"}}},
            "streams.s3.endpoint",
        ),
        ({"redis": URL, "streams": {"s3": {**S3, "endpoint": "s3.example.org"}}}, "streams.s3.endpoint"),
        ({"redis": URL, "streams": {"s3": {**S3, "endpoint": "https://s3?x=1"}}}, "streams.s3.endpoint"),
        ({"redis": URL, "streams": {"s3": {**S3, "bucket": "a/b"}}}, "streams.s3.bucket"),
        ({"redis": URL, "streams": {"s3": {**S3, "prefix": "../other"}}}, "streams.s3.prefix"),
        ({"redis": URL, "streams": {"s3": {"bucket": "streams"}}}, "streams.s3.endpoint"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named) as error:
        RelaySettings.from_mapping(values)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        *("", "localhost:6379", "http://localhost", "redis://", "redis://h:99999", "redis://h/a"),
        *("redis://h/0?ssl_ca_certs=x", "redis://h/0#x"),
    ],
)
def test_a_file_whose_address_is_none_is_refused_without_showing_it(address: str, tmp_path: Path) -> None:
    (tmp_path / "address").write_text(address)
    found = RelaySettings.from_mapping({"redis": {"url_file": str(tmp_path / "address")}})

    with pytest.raises(SettingsError, match=r"redis\.url"):
        RedisClient(found.redis)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    found = RelaySettings.from_mapping({"redis": {**URL, "password_file": str(tmp_path / "missing")}})

    with pytest.raises(SettingsError, match=r"password_file.*missing"):
        RedisClient(found.redis)
