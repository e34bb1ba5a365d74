"""What the broker refuses, and how."""

from __future__ import annotations


class Refusal(Exception):
    """An operation is refused; it closes its channel, or the connection."""

    def __init__(self, code: int, text: str, *, ends_connection: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.ends_connection = ends_connection
