"""Values filed under several names each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Index(Generic[T]):
    """Values by name.

    Most names stand for one value, and keep just that: a set for each of them would be the most
    of what a tree weighs, and of what every garbage collection walks.
    """

    def __init__(self) -> None:
        self._one: dict[str, T] = {}
        self._several: dict[str, set[T]] = {}

    def __len__(self) -> int:
        return len(self._one) + len(self._several)

    def add(self, names: Iterable[str], value: T) -> None:
        """File a value under each of the names."""
        for name in names:
            several = self._several.get(name)
            if several is not None:
                several.add(value)
            elif name not in self._one:
                self._one[name] = value
            elif self._one[name] != value:
                self._several[name] = {self._one.pop(name), value}

    def discard(self, names: Iterable[str], value: T) -> None:
        """Take a value from each of the names."""
        for name in names:
            several = self._several.get(name)
            if several is None:
                if name in self._one and self._one[name] == value:
                    del self._one[name]
                continue
            several.discard(value)
            if not several:
                del self._several[name]

    def find(self, name: str) -> tuple[T, ...]:
        """Return the values under a name."""
        if name in self._one:
            return (self._one[name],)
        return tuple(self._several.get(name, ()))

    def clear(self) -> None:
        """Forget everything."""
        self._one.clear()
        self._several.clear()
