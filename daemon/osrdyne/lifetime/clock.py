"""The target clock: lets time pass in the target, so that keys without activity step down on time."""

from __future__ import annotations

from osrdyne.base.changes import ChangeReader, seconds_until
from osrdyne.state.pool import PoolState


async def pass_time(state: PoolState) -> None:
    """Run until cancelled."""
    with ChangeReader().following(state.tracker.changes) as required:
        while True:
            # A key that is required meanwhile may be due earlier.
            await required.take(seconds_until(state.tracker.next_change(), state.clock()))
            state.tracker.advance(state.clock())
