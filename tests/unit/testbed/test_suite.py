"""What a run of `make test` leaves out."""

from __future__ import annotations

import pytest

from testbed.suite import SUITE, NotInThisSuite, examples, only_in_test_all


def test_make_test_tries_a_quarter_of_the_examples_and_any_other_run_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUITE, "test")
    assert examples(400) == 100
    monkeypatch.setenv(SUITE, "test-all")
    assert examples(400) == 400
    monkeypatch.delenv(SUITE)
    assert examples(400) == 400


def test_a_slow_engine_is_refused_in_make_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUITE, "test")
    with pytest.raises(NotInThisSuite, match="Docker is not for `make test`: mark this test `full`"):
        only_in_test_all("Docker")
    monkeypatch.setenv(SUITE, "test-all")
    only_in_test_all("Docker")
