"""Uniform draws for one story: a pure function of (seed, stream, index), the same on every machine and Python.

The words are those of spec annex/tasks.md (Philox), so that a story does not depend on what was drawn before it.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tasks.batches import bit_generator

Item = TypeVar("Item")
BLOCK = 64  # words fetched at once


def words(seed: int, stream: int, index: int) -> Iterator[int]:
    """The 64-bit words of the stream at this index, without end."""
    bits = bit_generator(seed, stream, index)
    while True:
        yield from bits.random_raw(BLOCK).tolist()


class Draws:
    """Draws from the words of a stream at one index."""

    def __init__(self, seed: int, stream: int, index: int):
        self._next = words(seed, stream, index).__next__

    def below(self, n: int) -> int:
        """One of 0 .. n−1."""
        return (self._next() * n) >> 64

    def choice(self, items: Sequence[Item]) -> Item:
        return items[(self._next() * len(items)) >> 64]

    def other(self, items: Sequence[Item], than: Item) -> Item:
        """One of the items that is not `than`; the items are distinct and have it among them."""
        item = items[(self._next() * (len(items) - 1)) >> 64]
        return items[-1] if item == than else item

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in any order, all orders equally likely."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            swap = self.below(last + 1)
            result[last], result[swap] = result[swap], result[last]
        return result

    def cycled(self, items: Sequence[Item]) -> list[Item]:
        """The items moved along one cycle through all of them (Sattolo): none stays, all such orders equally likely."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            swap = self.below(last)
            result[last], result[swap] = result[swap], result[last]
        return result
