"""What a hostile peer might send, as Hypothesis strategies: values, headers, properties, messages, JSON.

Every test with them runs the same examples each time (`FUZZ`): a failure is reproduced by running it again.
"""

from __future__ import annotations

import string
from datetime import UTC, datetime

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from osrdyne_amqp import Message, Properties
from osrdyne_amqp.codec.table import BinaryText
from osrdyne_protocol import events, headers, statuses
from testbed.suite import examples

#: A fixed budget of the same examples at every run.
FUZZ = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=examples(400),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)

INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, -1, 2**31, 2**63 - 1, -(2**63), 1_700_000_000_000])
TEXTS = st.text(max_size=40) | st.sampled_from(
    ["", "\0", "\n", "9" * 5000, "-1", "core-orphan", "core-req-42", "é" * 90]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    st.floats(),
    st.decimals(-(10**6), 10**6, places=3),
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    TEXTS,
    st.binary(max_size=40),
    st.builds(BinaryText, st.binary(max_size=10)),
)
#: Anything that can be in a header.
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)

#: Names that a program reads, with values that are nearly right.
OURS = [value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)]
KNOWN_VALUES = st.sampled_from(
    [
        *sorted(statuses.STATUSES),
        *sorted(events.ACTIVITY),
        *(status.encode() for status in sorted(statuses.STATUSES)),
        "core-req-42",
        b"\xff",
    ]
)
DEATHS = st.fixed_dictionaries(
    {"time": st.just(datetime(2026, 1, 1, tzinfo=UTC)) | SCALARS},
    optional={
        "routing-keys": VALUES | st.lists(TEXTS | st.binary(max_size=5), max_size=2),
        "original-expiration": SCALARS | st.sampled_from(["9" * 400, "9" * 5000, "-1", "1e3"]),
        "count": SCALARS,
        "queue": SCALARS,
        "reason": SCALARS,
    },
)
HEADERS = st.none() | st.dictionaries(
    st.sampled_from([*OURS, "x-death", "CC", "BCC"]) | TEXTS,
    VALUES | KNOWN_VALUES,
    max_size=6,
)
#: Headers of a letter that claims to be dead.
DEAD = st.fixed_dictionaries(
    {"x-first-death-reason": KNOWN_VALUES, "x-death": st.lists(DEATHS, min_size=1, max_size=2)},
    optional={
        "x-first-death-queue": KNOWN_VALUES | TEXTS,
        "x-osrdyne-first-seen": SCALARS,
        "x-delivery-count": SCALARS,
    },
)
SHORT = st.none() | st.text(max_size=60) | st.binary(max_size=60) | st.sampled_from(["core-orphan", "60000", "9" * 255])
PROPERTIES = st.builds(
    Properties,
    headers=HEADERS | DEAD,
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=SHORT,
    message_id=SHORT,
    user_id=SHORT,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
)
MESSAGES = st.builds(
    Message,
    body=st.binary(max_size=20),
    exchange=st.text(max_size=10),
    routing_key=st.text(max_size=60) | st.binary(max_size=60),
    properties=PROPERTIES,
    delivery_tag=st.integers(0, 2**64 - 1),
    redelivered=st.booleans(),
    malformed=st.none() | st.text(max_size=10),
)

#: Anything that `json.dumps` can write.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)

PRINTABLE = st.text(string.printable, max_size=80)
