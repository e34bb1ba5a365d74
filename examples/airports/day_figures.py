"""The figures of one airport and one day: what a job of `make demo-jobs` computes. Pure."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import NamedTuple

from examples.airports import flights

MINUTES_A_DAY = 24 * 60


class Figures(NamedTuple):
    """The flights from New York to one airport that were scheduled for one day."""

    flights: int
    cancelled: int
    #: Mean delay at departure in minutes, of the flights that left; None where none left.
    mean_delay: float | None


def of_day(airport: flights.Airport, day: date) -> Figures:
    """Return the figures of a day of 2013; of another year there are no flights."""
    first = flights.minute(datetime.combine(day, time()))
    of_the_day = [flight for flight in airport.flights if first <= flight.scheduled < first + MINUTES_A_DAY]
    delays = [flight.delay for flight in of_the_day if flight.delay is not None]
    mean = round(sum(delays) / len(delays), 6) if delays else None
    return Figures(len(of_the_day), len(of_the_day) - len(delays), mean)
