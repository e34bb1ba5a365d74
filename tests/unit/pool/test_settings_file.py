"""The table `[pool]` of a settings file: what is written of a pool, and read again."""

from __future__ import annotations

import tomllib
from dataclasses import fields

from osrdyne_pool import settings_file
from osrdyne_pool.settings import Delays, JobsSettings, PoolLimits, PoolSettings, RedoSettings
from osrdyne_runtime.settings_text import to_toml

WHOLE = PoolSettings(
    "core",
    instance="other",
    keys=("LAX", "SFO"),
    unbind_delay=10.0,
    stop_delay=11.0,
    overrides={"LAX": Delays(10.0, 12.0, warm=("sun 00:00-24:00",)), "SFO": Delays(1.0, 2.0, prewarm=((3.0, 4.0),))},
    message_ttl=13.0,
    orphan_ttl=14.0,
    delivery_limit=15,
    start_failures=0,
    worker_reasons=False,
    consumer_timeout=16.0,
    activity_max_length=17,
    poison_max_length=18,
    poison_max_bytes=19,
    events_max_age=20.0,
    events_max_bytes=21,
    limits=PoolLimits(groups=22),
    neighbours={"beside": PoolLimits(worker_connections=23), "below": PoolLimits()},
    jobs=JobsSettings(redo=RedoSettings(interval=4.0, alive_interval=0.25)),
)


def test_what_is_written_of_a_pool_is_what_differs_from_the_defaults() -> None:
    assert settings_file.pool_table(PoolSettings("core")) == {"name": "core"}
    pool = PoolSettings("core", orphan_ttl=90.0, overrides={"LAX": Delays(600.0, 30.0)}, limits=PoolLimits(groups=5))
    assert settings_file.pool_table(pool) == {
        "name": "core",
        "orphan_ttl": 90.0,
        # An override has no defaults of its own
        "overrides": {"LAX": {"unbind_delay": 600.0, "stop_delay": 30.0}},
        "limits": {"groups": 5},
    }


def test_every_setting_of_a_pool_is_written_and_read_as_it_is() -> None:
    plain = PoolSettings("core")
    same = {field.name for field in fields(PoolSettings) if getattr(WHOLE, field.name) == getattr(plain, field.name)}
    assert same == {"name"}
    for pool in (plain, WHOLE, PoolSettings("core", keys="[A-Z]+", jobs=JobsSettings())):
        written = to_toml({"pool": settings_file.pool_table(pool)})
        assert settings_file.pool(tomllib.loads(written)["pool"]) == pool
