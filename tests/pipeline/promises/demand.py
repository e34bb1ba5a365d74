"""Calls of a small pool for the tests of the loop, and the events that a pool would have recorded of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from osrdyne.commands.replay.command import command as replay
from osrdyne_pool.settings import PoolSettings
from osrdyne_runtime.settings_text import to_toml

DAY = 86_400
#: A Monday, 00:00 UTC.
MONDAY = 1_372_636_800
MINUTE = 60.0
#: Key -> mean time between calls that come by chance.
BY_CHANCE = {"BOS": 14 * MINUTE, "DEN": 24 * MINUTE, "ORD": 40 * MINUTE, "SFO": 300 * MINUTE, "SEA": 420 * MINUTE}
#: Key -> period of a timer that may be late.
TIMERS = {"LAX": 55 * MINUTE, "MIA": 100 * MINUTE}
LATE = 2 * MINUTE
#: By which part of its period a call of an odd timer is too early or too late, if not by much.
UNEVEN = 0.03


def demand(seed: int, since: float, days: float) -> list[tuple[float, str]]:
    """Return when each key is called, in the order of time."""
    found: list[tuple[float, str]] = []
    for number, (key, gap) in enumerate({**BY_CHANCE, **TIMERS}.items()):
        rng = np.random.default_rng([seed, number])
        if key in TIMERS:
            times = (
                np.arange(gap, days * DAY, gap)
                + rng.uniform(0, LATE, int(np.ceil(days * DAY / gap)))[: int((days * DAY - 1) // gap)]
            )
        else:
            times = np.cumsum(rng.exponential(gap, int(3 * days * DAY / gap) + 20))
        found += [(since + time, key) for time in times.tolist() if time < days * DAY - 1]
    return sorted(found)


def odd_timers(
    seed: int, since: float, days: float, periods: Mapping[str, float], odd: float
) -> list[tuple[float, str]]:
    """Return when each key is called by a timer, of which a share of calls comes much too early or too late.

    While these are few, no window by the clock is recommended for a timer, and the odd calls stay cold.
    """
    found: list[tuple[float, str]] = []
    for number, (key, period) in enumerate(periods.items()):
        rng = np.random.default_rng([seed, number])
        size = int(3 * days * DAY / period) + 20
        gaps = period * rng.uniform(1 - UNEVEN, 1 + UNEVEN, size)
        chance = rng.random(size)
        gaps = np.where(chance < odd / 2, period * rng.uniform(0.3, 0.8, size), gaps)
        gaps = np.where(chance > 1 - odd / 2, period * rng.uniform(1.25, 1.7, size), gaps)
        found += [(since + time, key) for time in np.cumsum(gaps).tolist() if time < days * DAY - 1]
    return sorted(found)


def events(
    folder: Path,
    calls: Sequence[tuple[float, str]],
    pool: PoolSettings,
    seed: int,
    *,
    statistics: float = 7.5,
    start: float = 2,
) -> Path:
    """Return a file of the events that a pool with these settings would have recorded."""
    folder.mkdir(exist_ok=True)
    listed, out, file = folder / f"calls-{seed}.csv", folder / f"events-{seed}.jsonl", folder / f"replayed-{seed}.toml"
    listed.write_text("time,key\n" + "".join(f"{time:.3f},{key}\n" for time, key in calls))
    file.write_text(to_toml({"pool": plain(pool), "broker": {"statistics_interval": statistics}}))
    replay(
        calls=listed, out=out, settings=file, unbind_delay=None, stop_delay=None, start_time=str(start),
        start_spread=0.0, run_time="0.05", seed=seed, json=False,
    )  # fmt: skip
    return out


def plain(pool: PoolSettings, of_a_second: float = 1.0) -> dict[str, Any]:
    """Return a pool's delays as its table in a settings file, each times `of_a_second`."""

    def delays(one: Any) -> dict[str, Any]:
        given = asdict(one)
        scaled = {name: given[name] * of_a_second for name in ("unbind_delay", "stop_delay")}
        spans = [[edge * of_a_second for edge in span] for span in given["prewarm"]]
        # A window is by the clock, which nothing makes faster.
        assert of_a_second == 1.0 or not given["warm"], given
        return scaled | ({"warm": list(given["warm"])} if given["warm"] else {}) | ({"prewarm": spans} if spans else {})

    return {
        "name": pool.name,
        "unbind_delay": pool.unbind_delay * of_a_second,
        "stop_delay": pool.stop_delay * of_a_second,
        "overrides": {key: delays(own) for key, own in pool.overrides.items()},
    }


def lines(rows: Iterator[dict[str, Any]]) -> str:
    """Return rows as JSON lines, without what is null."""
    return "".join(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n" for row in rows)


def moment(seconds: float) -> str:
    """Return a time as the option --from takes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
