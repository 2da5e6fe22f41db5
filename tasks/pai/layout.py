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

Inputs = dict[str, np.ndarray]


def take(images: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Images `[..., S, width]` at slots `[..., *shape]`: `[..., *shape, width]`."""
    *batch, count, width = images.shape
    examples = np.arange(math.prod(batch))[:, None]
    flat = examples * count + slots.reshape(len(examples), -1)
    return images.reshape(-1, width)[flat].reshape(*slots.shape, width)


def numbered(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of images `[n, width]` those that are different, and which of them each is `[n]`."""
    every = images + np.float32(0)  # −0 and 0 are one number
    _, first, place = np.unique(
        every.view(np.dtype((np.void, every.itemsize * images.shape[-1])))[:, 0], return_index=True, return_inverse=True
    )
    return every[first], place.astype(np.int32)


def compact(memory: np.ndarray, query: np.ndarray, slots: int) -> Inputs:
    """The batch's layout of one memory `[pairs, 2, width]` and one query `[3, width]`; equal images share a slot.

    Slots that are left over hold zeros; more images than slots are a `ValueError`.
    """
    width = memory.shape[-1]
    different, place = numbered(np.concatenate([memory.reshape(-1, width), query]))
    if len(different) > slots:
        raise ValueError(f"memory and query hold {len(different)} different images, expected at most {slots}")
    images = np.zeros((slots, width), np.float32)
    images[: len(different)] = different
    return {"images": images, "rows": place[:-3].reshape(-1, 2), "query": place[-3:]}


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
