"""Where the commands of a pool look for the broker, from one address."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from osrdyne.commands.pool import place
from osrdyne.settings.daemon import BrokerSettings
from osrdyne_runtime.console.output import CannotAsk


@pytest.mark.parametrize(
    ("address", "management"),
    [
        ("amqp://u:p%2F@host/v", "http://u:p%2F@host:15672"),
        ("amqp://u:p@host:5673/v?heartbeat=5", "http://u:p@host:15672"),
        ("amqps://u:p@[::1]/v?cacertfile=/a%20b.pem&heartbeat=5", "https://u:p@[::1]:15671?cacertfile=/a%20b.pem"),
        ("amqp://host", "http://guest:guest@host:15672"),
    ],
)
def test_the_management_api_is_on_the_same_host_at_its_usual_port(
    address: str, management: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(place.MANAGEMENT, raising=False)

    assert place.of(address).management == management


def test_a_variable_names_another_management_api_which_gets_the_same_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.MANAGEMENT, "https://api:1/path?cacertfile=/ca.pem")
    found = place.of("amqp://u:p@host/v")

    assert found.management == "https://u:p@api:1/path?cacertfile=/ca.pem"
    assert found.of_user("core-client", "a/b").amqp == "amqp://core-client:a%2Fb@host/v"
    monkeypatch.setenv(place.MANAGEMENT, "api:1")
    with pytest.raises(CannotAsk, match="OSRDYNE_BROKER_MANAGEMENT does not start with http"):
        place.of("amqp://u:p@host/v")


def test_the_settings_name_the_broker_before_the_variable_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.BROKER, "amqp://u:p@variable/v")
    named = BrokerSettings(
        amqp_uri=SecretStr("amqp://u:p@settings:1/w"), management_uri=SecretStr("http://u:p@settings")
    )

    assert str(place.chosen(named, None)) == "broker settings:1, virtual host w"
    assert str(place.chosen(BrokerSettings(), None)) == "broker variable, virtual host v"
