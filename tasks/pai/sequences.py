"""What the pairs of a memory say of its queries: which images stand in one sequence, and which types queries have.

The order of the two images of a pair is not used: the description of the released files does not say what it is. A
sequence and the same one turned round have the same pairs; of the two the one is meant in which the cue comes before
the match. That is enough to tell all types of queries apart.
"""

import numpy as np

from tasks.pai.trials import QueryType, query_types


def sequences(rows: np.ndarray, length: int) -> list[list[int]]:
    """The sequences of `length` images, as slots in order, that the pairs `[pairs, 2]` of one memory make.

    What the pairs join otherwise (more images or fewer, or one image beside three others, as when an image was drawn
    twice) is left out. Pairs that make a ring are a `ValueError`: how far apart images are has no answer there.
    """
    joined: dict[int, list[int]] = {}  # of each image all that it is joined to, one list for all of them
    beside: dict[int, list[int]] = {}
    for one, other in np.unique(rows, axis=0).tolist():
        first, second = (joined.setdefault(slot, [slot]) for slot in (one, other))
        if first is second:
            raise ValueError("the pairs of its memory form a ring")
        first += second
        joined.update(dict.fromkeys(second, first))
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    found = []
    for group in {id(group): group for group in joined.values()}.values():
        ends = [slot for slot in group if len(beside[slot]) == 1]
        if len(group) != length or len(ends) != 2:
            continue
        walk = [min(ends)]
        while len(walk) < length:
            walk.append(next(slot for slot in beside[walk[-1]] if slot not in walk[-2:]))
        found.append(walk)
    return found


def kinds_of(rows: np.ndarray, queries: np.ndarray, length: int) -> np.ndarray:
    """The types `[queries]` of the queries `[queries, 3]` (slots of cue, left and right) of one memory's pairs
    `[pairs, 2]`: indices into `query_types`, or their number where a query is of no type.

    A query has a type if one option stands in the cue's sequence and the other at the same place (from either end) of
    another one; on which side the match is does not matter. Pairs that make a ring are a `ValueError`.
    """
    where = {slot: (s, place) for s, of in enumerate(sequences(rows, length)) for place, slot in enumerate(of)}
    types = query_types(length)

    def kind(cue: int, left: int, right: int) -> int:
        if not {cue, left, right} <= where.keys():
            return len(types)
        (sequence, start), *options = (where[slot] for slot in (cue, left, right))
        (match, end), (lure, place) = options if options[0][0] == sequence else options[::-1]
        if match != sequence or lure == sequence or start == end or place not in (end, length - 1 - end):
            return len(types)
        return types.index(QueryType(*((start, end) if start < end else (length - 1 - start, length - 1 - end))))

    return np.array([kind(*query) for query in queries.tolist()], np.int64)
