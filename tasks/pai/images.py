"""Embeddings that look like the outputs of an ImageNet classifier, made on demand from (seed, image id).

What is imitated: the numbers before the softmax of a network that was trained on 1000 classes, entry j for class j.

- Classes are confusable: they come in groups of 2 to 16 with neighbouring numbers, as breeds of dogs do in ImageNet,
  and in families of a few groups. Classes of one group excite each other's entries and share most of the rest.
- The entry of an image's own class is large and varies with the image; one other class of its group is excited, too,
  at times more than the own one. So the largest number does not always name the class.
- Images of one class differ widely: 32 directions that all classes share, some strong and most weak, each moving the
  entries of a group together (pose, light, background), and a part of the image's own in every entry.
- Classes are the same in training, validation and test; images are disjoint: 1e6, 1e5 and 2e5, as in the paper.

What is not: no picture is behind the numbers. A real network errs on a fifth of the images it has not seen, and its
outputs then say another class; here a linear probe finds the class of nearly all (python -m tasks.pai.difficulty). Real
groups, spreads and directions are not those drawn here, no image is out of its class, and the classes are equally
frequent. An image's own part is a stretch of a fixed sequence of random numbers that begins at a place of its own.

Every number is a multiple of 2⁻¹⁰ and so small that sums in float32 are exact in any order: an image has the same bits
on every machine and in every batch.
"""

import statistics

import numpy as np

from ponder_ref.sampling import threefry2x32
from tasks.batches import words

CLASSES = WIDTH = 1000
POOLS = {"train": (0, 10**6), "valid": (10**6, 10**5), "test": (11 * 10**5, 2 * 10**5)}  # first image id, how many
STREAM = 16  # of the words behind the tables; the splits have 0 to 4

GROUP = (2, 16)  # classes in a group, each size equally likely
FAMILY = 6  # groups in a family
FAMILY_ENTRY, GROUP_ENTRY, OWN_ENTRY = 1.0, 3.0, 6.0  # what is added to entries of family, group and class
GROUP_PATTERN, CLASS_PATTERN = 0.75, 0.4  # standard deviations of what groups and classes add to every entry
OWN_SPREAD, MATE_SPREAD = 1.5, 2.0  # of the own entry, and of that of the class it is taken for
DIRECTIONS, DIRECTION_SPREAD = 32, 0.5  # number, and standard deviation of the strongest; the i-th has 1/√i of it
SINGLE_SPREAD, SINGLE_PLACES = 0.75, 2**20  # of an image's own part, and where in the sequence it may begin

BLOCK = 64  # images made at a time: they stay in the cache while their parts are added
PRODUCT = 8  # images in one matrix product: too small for BLAS to start threads, which would wait for those of training
BYTES = DIRECTIONS + 8  # random bytes of an image: one a direction, four for single entries, four for the place


def normal_levels() -> np.ndarray:
    """A standard normal in 256 equally likely levels, rounded to 1/16, `[256]` float32."""
    quantile = statistics.NormalDist().inv_cdf
    return np.array([round(16 * quantile((level + 0.5) / 256)) / 16 for level in range(256)], np.float32)


NORMAL = normal_levels()


def rounded(values: np.ndarray) -> np.ndarray:
    """To multiples of 1/64, float32: times a level of `NORMAL` they are multiples of 2⁻¹⁰."""
    return (np.rint(values.astype(np.float64) * 64) / 64).astype(np.float32)


class Images:
    """The images of a seed. `picks` number the images of a split from 0; every method takes any shape of them."""

    width, classes = WIDTH, CLASSES

    def __init__(self, seed: int):
        random = iter(words(seed, STREAM, range(6), 2 * 10**6 // 4))
        self.key = tuple(int(word) for word in next(random)[:2])
        self.group, self.first, self.count = make_groups(next(random))
        groups = len(self.first)

        def normals(shape: tuple[int, ...]) -> np.ndarray:
            return NORMAL[next(random).astype("<u4").view(np.uint8)[: int(np.prod(shape))].reshape(shape)]

        same_group = self.group[:, None] == self.group
        same_family = self.group[:, None] // FAMILY == self.group // FAMILY
        raised = OWN_ENTRY * np.eye(CLASSES) + GROUP_ENTRY * same_group + FAMILY_ENTRY * same_family
        shared = GROUP_PATTERN * normals((groups, WIDTH))[self.group]
        self.prototypes = rounded(raised + shared + CLASS_PATTERN * normals((CLASSES, WIDTH)))
        moved = normals((DIRECTIONS, groups + WIDTH))
        together = moved[:, :groups][:, self.group] + moved[:, groups:]  # of variance 2
        falling = np.sqrt(2 * np.arange(1, DIRECTIONS + 1))  # exact where exactness decides how halves are rounded
        self.directions = rounded(DIRECTION_SPREAD * (together / falling[:, None]))
        single = rounded(SINGLE_SPREAD * normals((SINGLE_PLACES + WIDTH - 1,)))
        self.singles = np.lib.stride_tricks.sliding_window_view(single, WIDTH)

    def size(self, split: str) -> int:
        """How many images a split has."""
        return POOLS[split][1]

    def labels(self, split: str, picks: np.ndarray) -> np.ndarray:
        """The classes, int64: image ids run through them in turn."""
        return (POOLS[split][0] + np.asarray(picks, np.int64)) % CLASSES

    def embeddings(self, split: str, picks: np.ndarray) -> np.ndarray:
        """The images, `[..., 1000]` float32."""
        picks = np.asarray(picks, np.int64)
        ids = POOLS[split][0] + picks.ravel()
        low, high = threefry2x32(self.key, np.broadcast_arrays(ids[:, None], np.arange(BYTES // 8)))
        random = np.stack([low, high], axis=-1).astype("<u4").view(np.uint8).reshape(ids.size, BYTES)
        along, tail = NORMAL[random[:, :DIRECTIONS]], np.ascontiguousarray(random[:, DIRECTIONS:])
        classes, places = ids % CLASSES, tail.view("<u4")[:, 1] % SINGLE_PLACES
        out = np.empty((ids.size, WIDTH), np.float32)
        for start in range(0, ids.size, BLOCK):
            block = slice(start, start + BLOCK)
            for first in range(start, min(start + BLOCK, ids.size), PRODUCT):
                part = slice(first, first + PRODUCT)
                np.matmul(along[part], self.directions, out=out[part])
            out[block] += self.prototypes[classes[block]]
            out[block] += self.singles[places[block]]
        rows = np.arange(ids.size)
        out[rows, classes] += np.float32(OWN_SPREAD) * NORMAL[tail[:, 0]]
        out[rows, self._mates(classes, tail[:, 2])] += np.float32(MATE_SPREAD) * np.abs(NORMAL[tail[:, 1]])
        return out.reshape(*picks.shape, WIDTH)

    def _mates(self, classes: np.ndarray, random: np.ndarray) -> np.ndarray:
        """Another class of the same group for each class `[n]`, by one random byte each."""
        group = self.group[classes]
        first, count = self.first[group], self.count[group]
        step = 1 + random.astype(np.int64) * (count - 1) // 256
        return first + (classes - first + step) % count


def make_groups(random: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The group of each class `[1000]`; the first class of each group and its number of classes, `[groups]`."""
    low, high = GROUP
    sizes: list[int] = []
    for word in random:
        left = CLASSES - sum(sizes)
        size = low + int(word) * (high - low + 1) // 2**32
        if size > left - low:  # nothing, or less than a group, would be left after this one
            sizes.append(left)
            break
        sizes.append(size)
    counts = np.array(sizes)
    return np.repeat(np.arange(len(sizes)), counts), np.cumsum(counts) - counts, counts
