"""What is started and closed by a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class StartedEngine(ABC):
    """An engine that runs within a `with` block. One whose start fails is closed, too."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it answers."""

    @abstractmethod
    def close(self) -> None:
        """End it, and leave nothing behind."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
