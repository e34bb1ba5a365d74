"""The questions a worker answers, as pure functions of what it knows: board, delays, likely delay.

Reads an `Airport` and a question, returns an answer, both as JSON objects. No I/O, no clock: the time is part
of the question, and an answer about a moment uses nothing that was not known at that moment.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from examples.airports import fields, flights
from osrdyne_protocol import foreign_json

#: A board shows flights that left up to this many minutes ago.
BOARD_PAST_MINUTES = 60
#: A board looks this many hours ahead unless the question says otherwise, and at most that many.
BOARD_HOURS = 3
BOARD_HOURS_LIMIT = 24
#: Fewer flights in similar weather than this make no estimate; all weather is taken instead.
SIMILAR_FLIGHTS = 20
PERCENTILES = (50, 90)

#: What an error shows to someone who asked in another form.
EXAMPLE = '{"question": "board", "at": "2013-12-21T17:30"}'

Question = dict[str, Any]
Answer = dict[str, Any]


def parse(body: bytes) -> Question:
    """Return the question that a request's body holds. Raises `fields.BadQuestion`."""
    try:
        question = foreign_json.read(body)
    except foreign_json.UnreadableJson as error:
        raise fields.BadQuestion(f"the body cannot be read: {error}") from error
    if not isinstance(question, dict):
        raise fields.BadQuestion(f"the body must be a JSON object such as {EXAMPLE}")
    return question


def answer(airport: flights.Airport, question: Question) -> Answer:
    """Return the answer of one airport to a question. Raises `fields.BadQuestion`."""
    kind = question.get("question")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise fields.BadQuestion(f"question must be one of {', '.join(_KINDS)}, not {fields.shown(kind)}")
    function, allowed = known
    unknown = sorted(question.keys() - allowed - {"question"})
    if unknown:
        names = ", ".join(sorted(allowed))
        raise fields.BadQuestion(f"{kind} has no field {fields.shown(unknown[0])}; its fields are {names}")
    return {"question": kind, "airport": airport.code, "name": airport.name} | function(airport, question)


def _board(airport: flights.Airport, question: Question) -> Answer:
    """The departures board at a moment: what just left, what is late, what comes."""
    now = fields.minute_of_2013(question)
    origin = fields.origin(question)
    hours = fields.whole_number(question, "hours", least=1, most=BOARD_HOURS_LIMIT) or BOARD_HOURS
    shown = []
    for flight in airport.flights:
        if flight.scheduled >= now + hours * 60:
            break
        still_here = flight.departed is not None and flight.departed > now
        if (flight.scheduled >= now - BOARD_PAST_MINUTES or still_here) and origin in (None, flight.origin):
            shown.append(_line(flight, now))
    return {"at": flights.text(now), "flights": shown}


def _line(flight: flights.Flight, now: int) -> Answer:
    """One flight as the board shows it, telling nothing that happens after `now`."""
    departed = flight.departed
    delay: int | None = None
    if departed is not None and departed <= now:
        status, delay = "departed", flight.delay
    elif flight.scheduled > now:
        status = "scheduled"
    elif departed is None:
        status = "cancelled"
    else:
        status, delay = "delayed", now - flight.scheduled
    return {
        "flight": f"{flight.carrier} {flight.number}",
        "origin": flight.origin,
        "scheduled": flights.text(flight.scheduled),
        "status": status,
        "delay": delay,
    }


def _delays(airport: flights.Airport, question: Question) -> Answer:
    """Percentiles of the departure delay by hour of the day, over the year or one month of it."""
    origin = fields.origin(question)
    month = fields.whole_number(question, "month", least=1, most=12)
    percentiles = fields.percentiles(question, PERCENTILES)
    by_hour: dict[int, list[flights.Flight]] = {}
    first, end = flights.month(month) if month else flights.YEAR
    for flight in airport.flights:
        if first <= flight.scheduled < end and origin in (None, flight.origin):
            by_hour.setdefault(flight.scheduled // 60 % 24, []).append(flight)
    return {"hours": [_hour(hour, by_hour[hour], percentiles) for hour in sorted(by_hour)]}


def _hour(hour: int, of_hour: list[flights.Flight], percentiles: Sequence[int]) -> Answer:
    delays = sorted(flight.delay for flight in of_hour if flight.delay is not None)
    return {
        "hour": hour,
        "flights": len(of_hour),
        "cancelled": len(of_hour) - len(delays),
        "delay": {str(percent): percentile(delays, percent) for percent in percentiles},
    }


def percentile(ordered: Sequence[int], percent: int) -> float | None:
    """Return a percentile of ordered numbers, linear between neighbours; None when there are none.

    With whole numbers and whole percents the result has two decimals at most; rounding takes the rest away.
    """
    if not ordered:
        return None
    whole, rest = divmod((len(ordered) - 1) * percent, 100)
    following = ordered[min(whole + 1, len(ordered) - 1)]
    return round(ordered[whole] + (following - ordered[whole]) * rest / 100, 2)


def _likely_delay(airport: flights.Airport, question: Question) -> Answer:
    """The median delay of earlier flights from the same origin in the weather of that hour, and of how many.

    Only flights that had left before the time asked count: an estimate must not know the
    outcome. With too few in similar weather it says so and takes all weather.
    """
    now = fields.minute_of_2013(question)
    origin = fields.origin(question)
    if origin is None:
        raise fields.BadQuestion(f"likely-delay needs an origin, one of {', '.join(fields.ORIGINS)}")
    conditions = airport.weather_at(origin, now)
    any_weather: list[int] = []
    similar: list[int] = []
    for flight in airport.flights:
        if flight.origin == origin and flight.delay is not None and flight.scheduled + flight.delay < now:
            any_weather.append(flight.delay)
            if conditions is not None and flight.weather == conditions:
                similar.append(flight.delay)
    basis, delays = "any weather", any_weather
    if len(similar) >= SIMILAR_FLIGHTS:
        basis, delays = "similar weather", similar
    return {
        "at": flights.text(now),
        "origin": origin,
        "weather": None if conditions is None else conditions._asdict(),
        "basis": basis if delays else "no flights",
        "flights": len(delays),
        "delay": float(statistics.median(delays)) if delays else None,
    }


_KINDS: dict[str, tuple[Callable[[flights.Airport, Question], Answer], frozenset[str]]] = {
    "board": (_board, frozenset({"at", "hours", "origin"})),
    "delays": (_delays, frozenset({"month", "origin", "percentiles"})),
    "likely-delay": (_likely_delay, frozenset({"at", "origin"})),
}
