"""What stands on calls alone brings no library of a broker or of Redis that it does not speak with."""

from __future__ import annotations

import subprocess

import pytest

import steps


@pytest.mark.parametrize(
    "module", ["osrdyne_calls", "osrdyne_relay.worker", "osrdyne_relay.client", "osrdyne_bus", "osrdyne_bus.endpoints"]
)
def test_a_program_without_a_broker_loads_neither_pika_nor_redis(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'pika', 'redis', 'hiredis'}} & sys.modules.keys()))"
    words = [str(steps.BIN / "python"), "-c", code]

    assert subprocess.run(words, env=steps.environment(), check=True, capture_output=True, text=True).stdout == "[]\n"
