"""A model of Redis: the commands of the relay, times to live, and pulses. The time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from osrdyne_relay.errors import RedisRefused
from osrdyne_relay.redis.port import Command

_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@dataclass(slots=True)
class _Entry:
    value: bytes | dict[bytes, bytes] | list[bytes]
    #: When it vanishes; None for a key that stays.
    until: float | None = None


class Model:
    """One Redis."""

    def __init__(self, publish: Callable[[bytes, bytes], int] = lambda channel, content: 0) -> None:
        """`publish` passes a pulse on, and returns how many receive it."""
        names = (
            "get",
            "set",
            "hset",
            "hsetnx",
            "hmget",
            "hstrlen",
            "hdel",
            "rpush",
            "lrange",
            "lrem",
            "pexpire",
            "del",  # for a planted mistake only
        )
        self._commands: dict[str, Callable[..., Any]] = {name.upper(): getattr(self, f"_{name}") for name in names}
        self._commands["PUBLISH"] = publish
        self._entries: dict[bytes, _Entry] = {}
        self._now = 0.0

    def transaction(self, commands: tuple[Command, ...], now: float) -> list[Any]:
        """Execute commands one after the other, also those after an error. Raises RedisRefused where there was one."""
        self._now = now
        answers, errors = [], []
        for name, *rest in commands:
            words = [_bytes(word) for word in rest]
            try:
                answers.append(self._commands[str(name)](*words))
            except RedisRefused as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def flush(self) -> None:
        """Lose everything."""
        self._entries.clear()

    def contents(self, now: float) -> dict[bytes, Any]:
        """Return all keys with their values."""
        self._now = now
        return {key: entry.value for key in list(self._entries) if (entry := self._entry(key))}

    def stays(self, now: float) -> dict[bytes, float | None]:
        """Return all keys with the seconds that they stay; None for ever."""
        self._now = now
        found = {key: entry for key in list(self._entries) if (entry := self._entry(key))}
        return {key: None if entry.until is None else entry.until - now for key, entry in found.items()}

    def _entry(self, key: bytes) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is not None and entry.until is not None and entry.until <= self._now:
            del self._entries[key]
            return None
        return entry

    def _of(self, kind: type, key: bytes, *, make: bool = False) -> Any:
        entry = self._entry(key)
        if entry is None:
            value = kind()
            if make:
                self._entries[key] = _Entry(value)
            return value
        if not isinstance(entry.value, kind):
            raise RedisRefused(_WRONG_TYPE)
        return entry.value

    def _drop_empty(self, key: bytes) -> None:
        if not self._entries[key].value:
            del self._entries[key]

    # --- strings --------------------------------------------------------------------------------------------------

    def _get(self, key: bytes) -> bytes | None:
        return None if self._entry(key) is None else self._of(bytes, key)

    def _set(self, key: bytes, value: bytes, *options: bytes) -> bytes | None:
        *only, px, ms = options
        assert only in ([], [b"NX"])
        assert px == b"PX"
        if only and self._entry(key) is not None:
            return None
        self._entries[key] = _Entry(value, self._now + int(ms) / 1000)
        return b"OK"

    # --- hashes ---------------------------------------------------------------------------------------------------

    def _hset(self, key: bytes, field: bytes, value: bytes) -> int:
        fields = self._of(dict, key, make=True)
        new = field not in fields
        fields[field] = value
        return int(new)

    def _hsetnx(self, key: bytes, field: bytes, value: bytes) -> int:
        if field in self._of(dict, key):
            return 0
        return self._hset(key, field, value)

    def _hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        found = self._of(dict, key)
        return [found.get(field) for field in fields]

    def _hstrlen(self, key: bytes, field: bytes) -> int:
        return len(self._of(dict, key).get(field, b""))

    def _hdel(self, key: bytes, *fields: bytes) -> int:
        found = self._of(dict, key)
        gone = [field for field in dict.fromkeys(fields) if found.pop(field, None) is not None]
        if gone:
            self._drop_empty(key)
        return len(gone)

    # --- lists ----------------------------------------------------------------------------------------------------

    def _rpush(self, key: bytes, value: bytes) -> int:
        waiting = self._of(list, key, make=True)
        waiting.append(value)
        return len(waiting)

    def _lrange(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        # Redis counts a negative number from the end
        assert int(first) == 0 <= int(last)
        return list(self._of(list, key)[: int(last) + 1])

    def _lrem(self, key: bytes, count: bytes, value: bytes) -> int:
        assert int(count) == 1
        waiting = self._of(list, key)
        if value not in waiting:
            return 0
        waiting.remove(value)
        self._drop_empty(key)
        return 1

    # --- keys -----------------------------------------------------------------------------------------------------

    def _pexpire(self, key: bytes, ms: bytes, only: bytes = b"") -> int:
        entry = self._entry(key)
        until = self._now + int(ms) / 1000
        if entry is None or (only == b"NX" and entry.until is not None):
            return 0
        # A key that stays for ever counts as one that stays longest.
        if only == b"GT" and (entry.until is None or until <= entry.until):
            return 0
        entry.until = until
        return 1

    def _del(self, key: bytes) -> int:
        return int(self._entry(key) is not None and self._entries.pop(key) is not None)


def _bytes(word: str | bytes | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
