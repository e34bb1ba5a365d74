"""What became of the requests of `make demo-relay`: the account, and its line for scripts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Errors after which a request did not run, and will not.
NOT_RUN = frozenset({"NotCollected", "NodesAway", "TooMany", "TooLarge", "InvalidCall", "AccessDenied"})
#: Errors after which it may have run.
MAY_HAVE_RUN = frozenset(
    {
        *("CallFailed", "CallTimedOut", "Cancelled", "DataLost", "NodeFailed", "NodeLost", "PeerGone"),
        *("RedisAway", "RedisRefused", "RelayClosed", "UnreadableResponse"),
    }
)
#: A request whose answer came.
ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Account:
    """The numbers of one run of the demo."""

    requests: int
    answered: int
    #: Requests that ended in an error whose statement about the run was true.
    failed: int
    #: Requests without an end, or whose end is not true: answered and never run, or run although the error says not.
    lost: int
    #: Requests that ran more than once.
    twice: int
    #: Answers that are not those of the flights.
    wrong: int

    @property
    def good(self) -> bool:
        """Whether every request was answered rightly, or failed as the error says."""
        return not (self.lost or self.twice or self.wrong)

    @property
    def last_line(self) -> str:
        """The line that a script looks for."""
        names = ("requests", "answered", "failed", "lost", "twice")
        return "relay: " + " ".join(f"{name}={getattr(self, name)}" for name in names)


def account(requests: int, ends: Mapping[int, str], runs: Iterable[int], wrong: int) -> Account:
    """Return the account of so many requests, numbered from 0.

    `ends`: `ANSWERED` or the name of the error, by request. `runs`: the request of each run that began. `wrong`: how
    many answers are not those of the flights.
    """
    ran = Counter(runs)

    def is_true(request: int) -> bool:
        end = ends.get(request)
        return bool(ran[request]) if end == ANSWERED else end in MAY_HAVE_RUN or (end in NOT_RUN and not ran[request])

    lost = sum(not is_true(request) for request in range(requests))
    answered = sum(is_true(request) and ends[request] == ANSWERED for request in range(requests))
    twice = sum(count > 1 for count in ran.values())
    return Account(requests, answered, requests - answered - lost, lost, twice, wrong)
