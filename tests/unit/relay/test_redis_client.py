"""What a connection to Redis is made with, before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.redis_client import RedisClient
from osrdyne_relay.settings import RedisSettings
from testbed.authority import Authority


def test_a_certificate_that_cannot_be_used_is_named_before_anything_connects(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("own")
    files = {"certificate_file": own.certfile, "key_file": own.certfile}
    settings = RedisSettings.model_validate({"url": "rediss://127.0.0.1:1", **files})

    with pytest.raises(SettingsError, match=r"redis\.certificate_file: cannot be used: no certificate and key in PEM"):
        RedisClient(settings)
