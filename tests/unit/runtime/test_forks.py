"""Which process something was opened in."""

from __future__ import annotations

import os

from osrdyne_protocol.errors import OtherProcess
from osrdyne_runtime.forks import OwnerProcess
from testbed.forked import RaisedError, in_fork


def test_what_was_opened_here_is_used_here_and_refused_in_a_fork_with_what_to_do() -> None:
    home = OwnerProcess()
    home.check("this client")
    assert home.is_here
    assert in_fork(lambda: (home.is_here, OwnerProcess().is_here)) == (False, True)
    found = in_fork(lambda: home.check("this client"))
    assert isinstance(found, RaisedError)
    assert found.kind == OtherProcess.__name__
    assert f"this client was opened in process {os.getpid()}" in found.text
    assert "open another one after the fork" in found.text


def test_a_fork_of_a_fork_is_another_process_too() -> None:
    home = OwnerProcess()
    assert in_fork(lambda: in_fork(lambda: home.is_here)) is False
