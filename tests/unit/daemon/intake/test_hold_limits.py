"""How much is held for each key and in all: one key, or some, can not take the room of the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne.intake.hold_limits import HeldMessages

MIB = 1024 * 1024


def admitted(holding: HeldMessages, key: str, size: int, tries: int = 1000) -> int:
    return sum(holding.admit(key, size) for _ in range(tries))


def test_one_key_is_held_up_to_its_own_bound() -> None:
    holding = HeldMessages(per_key=32, total=128, total_bytes=64 * MIB)
    assert admitted(holding, "bad", 100) == 32
    assert admitted(holding, "good", 100) == 32


def test_what_is_released_can_be_held_again() -> None:
    holding = HeldMessages(per_key=1, total=10, total_bytes=1000)
    assert holding.admit("42", 10)
    assert not holding.admit("42", 10)
    holding.release("42", 10)
    assert (holding.messages, holding.bytes) == (0, 0)
    assert holding.admit("42", 10)


def test_many_bad_keys_leave_room_for_one_that_holds_nothing() -> None:
    holding = HeldMessages(per_key=32, total=128, total_bytes=64 * MIB)
    for number in range(20):
        admitted(holding, f"bad {number}", 100)
    assert holding.admit("good", 100)


def test_large_bodies_of_one_key_leave_bytes_for_the_others() -> None:
    holding = HeldMessages(per_key=32, total=128, total_bytes=64 * MIB)
    assert admitted(holding, "bad", 16 * MIB) == 2
    assert holding.admit("good", 16 * MIB)
    assert admitted(holding, "better", 1000) > 1


def test_a_small_request_of_an_idle_key_is_held_although_large_ones_took_all_bytes() -> None:
    holding = HeldMessages(per_key=32, total=128, total_bytes=64 * MIB)
    for number in range(4):
        assert holding.admit(f"large {number}", 16 * MIB)
    assert not holding.admit("another large", 16 * MIB)
    assert holding.admit("small", 1000)
    assert not holding.admit("small", 1000)


def test_a_body_over_the_bound_is_held_when_it_is_alone() -> None:
    holding = HeldMessages(per_key=32, total=128, total_bytes=1000)
    assert holding.admit("42", 5000)
    assert not holding.admit("7", 5000)


steps = st.lists(
    st.tuples(st.booleans(), st.sampled_from("abcdefgh"), st.integers(0, 400)),
    max_size=80,
)


@given(steps, st.integers(1, 6), st.integers(1, 12))
def test_no_bound_is_ever_passed_and_the_counts_stay_true(
    actions: list[tuple[bool, str, int]], per_key: int, total: int
) -> None:
    bound = 1000
    holding, held = HeldMessages(per_key=per_key, total=total, total_bytes=bound), list[tuple[str, int]]()
    for take, key, size in actions:
        if take:
            mine = [hold for hold in held if hold[0] == key]
            fits = holding.admit(key, size)
            if fits:
                held.append((key, size))
            # Others keep no key out while the share of one message is free.
            if not mine and len(held) < total and size * total <= bound:
                assert fits
        elif held:
            holding.release(*held.pop(0))
        assert (holding.messages, holding.bytes) == (len(held), sum(size for _, size in held))
        assert holding.messages <= total
        assert holding.bytes <= 2 * bound
        assert all(sum(key == other for other, _ in held) <= per_key for key, _ in held)
