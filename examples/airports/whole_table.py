"""Answers the same questions from the whole table, to check workers by.

Written with pandas on the data set's own tables, and on purpose without any code of the worker: an error in
what a worker prepared, loaded or computed shows as a difference. Slow to start (pandas, 336,776 rows) and
large; no worker imports it.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd

KEPT = ["dest", "origin", "month", "hour", "dep_delay", "visibility", "wind", "precipitation"]
HOUR = ["origin", "year", "month", "day", "hour"]


class WholeTable:
    """The flights of 2013 from New York, each beside the weather at its origin and hour."""

    def __init__(self, data: Path) -> None:
        """Read the tables from the data set's folder."""
        table = pd.read_csv(data / "flights.csv.zip")
        table["at"] = pd.to_datetime(table[["year", "month", "day", "hour", "minute"]])
        table["left"] = table["at"] + pd.to_timedelta(table["dep_delay"], unit="min")
        table["who"] = table["carrier"] + " " + table["flight"].astype(str)
        # The hour from 01:00 is there twice on the day when clocks go back.
        weather = pd.read_csv(data / "weather.csv").drop_duplicates(HOUR, keep="first")
        sky = pd.DataFrame(
            {
                "visibility": pd.cut(weather["visib"], [-1, 2.999, 9.999, 100], labels=["low", "hazy", "clear"]),
                "wind": pd.cut(weather["wind_speed"], [-1, 11.999, 19.999, 200], labels=["calm", "breeze", "strong"]),
                "precipitation": pd.cut(weather["precip"], [-1, 0, 0.0999, 100], labels=["dry", "light", "heavy"]),
            }
        ).astype(object)
        self._weather = pd.concat([weather[HOUR], sky.where(sky.notna().all(axis=1))], axis=1)
        table = table.merge(self._weather, on=HOUR, how="left")
        # Strings compare slowly 336,776 times a question; categories do not.
        for column in ("dest", "origin", "visibility", "wind", "precipitation"):
            table[column] = table[column].astype("category")
        table = table.sort_values(["at", "origin", "carrier", "flight"], kind="stable")
        self._table = table[[*KEPT, "at", "left", "who"]]
        self._names = pd.read_csv(data / "airports.csv").set_index("faa")["name"].to_dict()
        self._destinations = set(table["dest"].unique())

    @property
    def destinations(self) -> list[str]:
        """The destinations that any flight of the year went to, in order."""
        return sorted(self._destinations)

    def schedule(self, day: date, first: int = 0, last: int = 24) -> list[tuple[datetime, str, str]]:
        """Return scheduled departure, origin and destination of the flights of a day, in that order.

        Only those scheduled from hour `first` until before hour `last`.
        """
        begin = pd.Timestamp(day)
        wanted = self._table["at"].between(
            begin + pd.Timedelta(hours=first), begin + pd.Timedelta(hours=last), inclusive="left"
        )
        flights = self._table[wanted]
        at = flights["at"].dt.to_pydatetime()
        return list(zip(at, flights["origin"], flights["dest"], strict=True))

    def answer(self, destination: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer that a worker of `destination` should give to a question that is in order."""
        table = self._table[self._table["dest"] == destination]
        ask = {"board": self._board, "delays": self._delays, "likely-delay": self._likely_delay}
        name = self._names.get(destination) if destination in self._destinations else None
        head = {"question": question["question"], "airport": destination, "name": name}
        return head | ask[question["question"]](table, question)

    def _board(self, table: pd.DataFrame, question: dict[str, Any]) -> dict[str, Any]:
        now = pd.Timestamp(question["at"])
        end = now + pd.Timedelta(hours=question.get("hours", 3))
        shown = table[(table["at"] < end) & ((table["at"] >= now - pd.Timedelta(hours=1)) | (table["left"] > now))]
        if "origin" in question:
            shown = shown[shown["origin"] == question["origin"]]
        lines = []
        for flight in shown.to_dict("records"):
            at, left = flight["at"], flight["left"]
            line = {"flight": flight["who"], "origin": flight["origin"], "scheduled": at.isoformat()[:16]}
            if left <= now:
                line |= {"status": "departed", "delay": int(flight["dep_delay"])}
            elif at > now:
                line |= {"status": "scheduled", "delay": None}
            elif pd.isna(left):
                line |= {"status": "cancelled", "delay": None}
            else:
                line |= {"status": "delayed", "delay": int((now - at).total_seconds() // 60)}
            lines.append(line)
        return {"at": now.isoformat()[:16], "flights": lines}

    def _delays(self, table: pd.DataFrame, question: dict[str, Any]) -> dict[str, Any]:
        for field in ("month", "origin"):
            if field in question:
                table = table[table[field] == question[field]]
        hours = []
        for hour, flights in table.groupby("hour"):
            percents = question.get("percentiles", [50, 90])
            values = flights["dep_delay"].quantile([percent / 100 for percent in percents])
            delay = {
                str(percent): None if math.isnan(value) else round(float(value), 2)
                for percent, value in zip(percents, values, strict=True)
            }
            cancelled = int(flights["dep_delay"].isna().sum())
            hours.append({"hour": hour, "flights": len(flights), "cancelled": cancelled, "delay": delay})
        return {"hours": hours}

    def _likely_delay(self, table: pd.DataFrame, question: dict[str, Any]) -> dict[str, Any]:
        now, origin = pd.Timestamp(question["at"]), question["origin"]
        there = self._weather[self._weather["origin"] == origin]
        of_hour = there[(pd.to_datetime(there[HOUR[1:]]) == now.floor("h")) & there["visibility"].notna()]
        sky = of_hour[["visibility", "wind", "precipitation"]].to_dict("records")
        before = table[(table["origin"] == origin) & (table["left"] < now)]
        basis = "any weather" if len(before) else "no flights"
        if sky:
            similar = before[(before[list(sky[0])] == pd.Series(sky[0])).all(axis=1)]
            if len(similar) >= 20:
                before, basis = similar, "similar weather"
        return {
            "at": now.isoformat()[:16],
            "origin": origin,
            "weather": sky[0] if sky else None,
            "basis": basis,
            "flights": len(before),
            "delay": float(before["dep_delay"].median()) if len(before) else None,
        }
