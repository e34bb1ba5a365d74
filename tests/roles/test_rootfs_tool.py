"""The tool that keeps a broker in a root file system of its own, as roles/rabbitmq uses it."""

from __future__ import annotations

import json

from tests.engines.broker import Broker, run_tool


def configured(broker: Broker, **other: int) -> bool:
    """Configure the broker as it is, but for `other`; whether the tool says that the broker has to be restarted."""
    told = json.loads((broker.directory / "instance.json").read_text()) | other
    words = [word for name, value in told.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return bool(json.loads(run_tool("configure", "--dir", str(broker.directory), *words))["changed"])


def test_a_configuration_asks_for_a_restart_until_the_broker_has_loaded_it() -> None:
    # Given a broker, and whoever configured it anew was cut short before the restart
    with Broker("4.3") as broker:
        assert not configured(broker)
        assert configured(broker, memory=700)
        # Then the next run finds nothing to write and still asks for it
        assert configured(broker, memory=700)
        # And once it was restarted, no longer
        broker.restart()
        assert not configured(broker, memory=700)
