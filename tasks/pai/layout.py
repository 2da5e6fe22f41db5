"""How examples cross into a backend: each image once, and small arrays that say where it stands.

The paper's memory `[32, 2, 1000]` shows most images twice and the query `[3, 1000]` shows three of them again. A batch
has instead, for sequences of length L,

    images  [..., 16·L, 1000]     float32, in an order that says nothing
    rows    [..., 16·(L−1), 2]    int32, the slots of each pair of the memory, first image first; rows in random order
    query   [..., 3]              int32, the slots of cue, left and right

A model embeds every image once and takes the embeddings by slot. It must not use a slot's number in any other way, and
must take any number of images: controls and files may bring slots that no row names.
"""

import math

import numpy as np

from tasks.pai.trials import query_types

Inputs = dict[str, np.ndarray]


def take(images: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Images `[..., S, width]` at slots `[..., *shape]`: `[..., *shape, width]`."""
    *batch, count, width = images.shape
    examples = np.arange(math.prod(batch))[:, None]
    flat = examples * count + slots.reshape(len(examples), -1)
    return images.reshape(-1, width)[flat].reshape(*slots.shape, width)


def materialise(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """The paper's layout: memory `[..., 16·(L−1), 2, width]` and query `[..., 3, width]`."""
    return take(inputs["images"], inputs["rows"]), take(inputs["images"], inputs["query"])


def compact(memory: np.ndarray, query: np.ndarray, slots: int) -> Inputs:
    """The batch's layout of one memory `[pairs, 2, width]` and one query `[3, width]`; equal images share a slot.

    Slots that are left over hold zeros; more images than slots are a `ValueError`.
    """
    width = memory.shape[-1]
    every = np.concatenate([memory.reshape(-1, width), query]) + np.float32(0)  # −0 and 0 are one number
    _, first, place = np.unique(
        every.view(np.dtype((np.void, every.itemsize * width)))[:, 0], return_index=True, return_inverse=True
    )
    if len(first) > slots:
        raise ValueError(f"memory and query hold {len(first)} different images, expected at most {slots}")
    images = np.zeros((slots, width), np.float32)
    images[: len(first)] = every[first]
    place = place.astype(np.int32)
    return {"images": images, "rows": place[:-3].reshape(-1, 2), "query": place[-3:]}


def places(rows: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each slot the first image of its sequence and its place in it, both `[..., slots]`, from the pairs alone."""
    shape = (*rows.shape[:-2], slots)
    own = np.broadcast_to(np.arange(slots), shape)
    before = own.copy()
    np.put_along_axis(before, rows[..., 1].astype(np.int64), rows[..., 0].astype(np.int64), axis=-1)
    start, place = own, np.zeros(shape, np.int64)
    while (place <= rows.shape[-2]).all():
        earlier = np.take_along_axis(before, start, axis=-1)
        if (earlier == start).all():
            return start, place
        place, start = place + (earlier != start), earlier
    raise ValueError("the pairs of a memory form a ring")


def kinds_of(inputs: Inputs, length: int) -> np.ndarray:
    """The index into `query_types` of each example, `[...]`, found by following the memory's pairs; −1 for others."""
    _, place = places(inputs["rows"], inputs["images"].shape[-2])
    query = np.minimum(np.take_along_axis(place, inputs["query"].astype(np.int64), axis=-1), length)
    index = np.full((length + 1, length + 1), -1)
    for i, kind in enumerate(query_types(length)):
        index[kind] = i
    return index[query[..., 0], query[..., 1]]


def sides_of(inputs: Inputs) -> np.ndarray:
    """0 where the left image is of the cue's sequence, 1 where the right one is, −1 where both or none are."""
    start, _ = places(inputs["rows"], inputs["images"].shape[-2])
    cue, left, right = np.moveaxis(np.take_along_axis(start, inputs["query"].astype(np.int64), axis=-1), -1, 0)
    return np.where((left == cue) == (right == cue), -1, np.where(left == cue, 0, 1))


def without_memory(inputs: Inputs) -> Inputs:
    """A control: the same queries, the memory full of zeros. Nothing is left to answer from."""
    return _with_memory(np.zeros_like(inputs["images"]), inputs["rows"], inputs)


def shuffled_memory(inputs: Inputs) -> Inputs:
    """A control: each query beside the memory of the example before it in the batch (the last axis of examples)."""
    return _with_memory(np.roll(inputs["images"], 1, axis=-3), np.roll(inputs["rows"], 1, axis=-3), inputs)


def _with_memory(images: np.ndarray, rows: np.ndarray, inputs: Inputs) -> Inputs:
    """These memories with the queries of `inputs`, whose images get slots of their own."""
    asked = take(inputs["images"], inputs["query"])
    slots = images.shape[-2] + np.arange(3, dtype=np.int32)
    query = np.broadcast_to(slots, inputs["query"].shape).copy()
    return {"images": np.concatenate([images, asked], axis=-2), "rows": rows, "query": query}
