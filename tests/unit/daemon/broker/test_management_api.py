"""What is read from an answer of the management API about alarms."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from osrdyne.broker.management_api import ManagementApi, alarms
from osrdyne.errors import ManagementError
from osrdyne_protocol.names import PoolNames
from testbed.authority import Authority
from testbed.handshakes import listening


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"status":"failed","alarms":[{"node":"b","resource":"memory"},{"node":"a","resource":"memory"}]}', "memory"),
        ('{"alarms":[{"resource":"memory"},{"resource":"disk"}]}', "disk, memory"),
        ('{"alarms":[]}', None),
        ("<html>", None),
        ("[]", None),
        ("[" * 100_000, None),
    ],
)
def test_an_alarm_is_named_by_its_resources_and_other_answers_are_none(answer: str, said: str | None) -> None:
    assert alarms(answer) == said


async def test_another_ca_in_the_file_counts_at_the_next_call(tmp_path: Path) -> None:
    ours, other, file = Authority(tmp_path / "ours"), Authority(tmp_path / "other"), tmp_path / "ca.pem"
    shutil.copy(other.cacertfile, file)
    with listening(ours.issue("server", addresses=["127.0.0.1"])) as port:
        api = ManagementApi(f"https://user:hunter2@127.0.0.1:{port}?cacertfile={file}", "v")

        with pytest.raises(ManagementError, match=f"no management API at .*{file} must hold that CA's certificate"):
            await api.topology()
        shutil.copy(ours.cacertfile, file)
        with pytest.raises(ManagementError, match=r"no management API at .*is the broker up, with rabbitmq_management"):
            await api.topology()
        file.unlink()
        with pytest.raises(ManagementError, match=f"^management_uri: cacertfile {file}: No such file"):
            await api.topology()


async def test_an_address_where_nothing_listens_is_named_once_with_the_systems_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(ManagementError) as caught:
        await ManagementApi(f"http://user:hunter2@127.0.0.1:{port}", "v").topology()

    expected = f"no management API at http://127.0.0.1:{port}: Connection refused; is the broker up, with"
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("listed", [[{"name": "core-dl"}], []], ids=["not-counted", "not-listed"])
async def test_a_number_of_consumers_that_is_missing_is_not_zero(
    listed: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(_: ManagementApi, path: str, params: Mapping[str, str]) -> list[dict[str, object]]:
        return listed if "columns" in params else [{"name": "core-dl", "type": "quorum", "messages": 0}]

    monkeypatch.setattr(ManagementApi, "_get", get)

    held = await ManagementApi("http://user:hunter2@127.0.0.1:1", "v").held(PoolNames("core"))

    assert held == {"core-dl": (0, None)}
