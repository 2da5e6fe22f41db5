"""How hard the generated task is, measured before any training: `python -m tasks.pai.difficulty --seed 0`.

The same numbers belong beside every result. None of them needs a model:

- a linear probe, fitted on training images, finds the class of test images;
- how alike images of one class are, of classes that are easily confused, and of others (cosine), and how often a pair
  of one class is less alike than a pair of two;
- how many memories hold two images of one class, so that classes alone do not tell images apart;
- what looking up the memory's nearest row answers, by type of query; it must fail where cue and match are in different
  rows. (It is a little worse than chance: the two rows that half fit the match share an image, so that both are far off
  together.) Beside it: following the rows from image to image, and the same if images of one class were all alike.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ponder_ref.runtime.errors import one_sentence
from ponder_ref.runtime.values import Integer
from tasks.batches import EVAL_BATCH
from tasks.config import MAX_SEED
from tasks.flags import Parser, flag_value
from tasks.pai.data import Data
from tasks.pai.images import CLASSES, POOLS, Images
from tasks.pai.layout import take
from tasks.pai.trials import LENGTHS, SEQUENCES, query_types

PROBE_IMAGES, PROBE_TESTS, PAIR_IMAGES = 20_000, 10_000, 4_000  # multiples of 1000: equally many of each class
BATCHES = 8
QUICK = 4  # times fewer tests and queries; half of the images for fitting and pairs
RIDGE = 10.0  # added to the squared length of the inputs, an image of each class


def linear_probe(images: Images, fitted: int, tested: int) -> tuple[float, float]:
    """Accuracy on test images of ridge regression onto the classes, and of naming the largest number."""
    picks = np.arange(fitted)
    inputs, labels = images.embeddings("train", picks), images.labels("train", picks)
    mean = inputs.mean(axis=0)
    inputs -= mean
    sums = np.zeros((CLASSES, images.width), np.float32)
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    sums[present] = np.add.reduceat(inputs[order], starts, axis=0)
    gram = inputs.T @ inputs + np.float32(RIDGE * fitted / CLASSES) * np.eye(images.width, dtype=np.float32)
    weights = np.linalg.solve(gram, sums.T)
    picks = np.arange(tested)
    inputs, labels = images.embeddings("test", picks), images.labels("test", picks)
    probe = ((inputs - mean) @ weights).argmax(axis=1) == labels
    return float(probe.mean()), float((inputs.argmax(axis=1) == labels).mean())


def likeness(images: Images, count: int) -> dict[str, Any]:
    """Cosines of pairs of test images: mean and standard deviation by relation, and how they overlap."""
    picks = np.arange(count)
    inputs, labels = images.embeddings("test", picks), images.labels("test", picks)
    inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
    cosines = inputs @ inputs.T
    upper = np.triu(np.ones((count, count), bool), 1)
    same = labels[:, None] == labels
    group = images.group[labels]
    near = (group[:, None] == group) & ~same
    found = {
        "same": cosines[same & upper],
        "confusable": cosines[near & upper],
        "other": cosines[~same & ~near & upper],
    }
    result: dict[str, Any] = {name: [float(of.mean()), float(of.std())] for name, of in found.items()}
    for name in ("confusable", "other"):
        below = np.searchsorted(np.sort(found[name]), found["same"]).mean() / len(found[name])
        result[f"same_below_{name}"] = float(1 - below)
    return result


def share_with_twins(data: Data, batches: int) -> float:
    """The share of test memories that hold two images of one class."""
    drawn, _ = data.drawn("test", range(batches))
    labels = np.sort(data.source.labels("test", drawn.picks), axis=-1)
    return float((labels[..., 1:] == labels[..., :-1]).any(axis=-1).mean())


def choose(costs: np.ndarray, side: np.ndarray) -> np.ndarray:
    """How right the cheaper of left and right is, `[B]`: 1, 0, or a half for a tie; costs `[B, 2]`."""
    match, lure = np.take_along_axis(costs, np.stack([side, 1 - side], axis=-1), axis=-1).T
    return np.where(match == lure, 0.5, match < lure)


def nearest_row(inputs: dict[str, np.ndarray], side: np.ndarray) -> np.ndarray:
    """Takes the option that, behind the cue, is nearest to a row of the memory; right or not `[B]`."""
    images, rows = inputs["images"], inputs["rows"]
    asked = take(images, inputs["query"])
    squares = [np.einsum("bsw,bsw->bs", of, of) for of in (asked, images)]
    distances = squares[0][:, :, None] + squares[1][:, None] - 2 * asked @ images.transpose(0, 2, 1)
    to_cue = np.take_along_axis(distances[:, 0], rows[..., 0], axis=1)
    costs = [(to_cue + np.take_along_axis(distances[:, i], rows[..., 1], axis=1)).min(axis=1) for i in (1, 2)]
    return choose(np.stack(costs, axis=-1), side)


def following(
    names: np.ndarray, rows: np.ndarray, query: np.ndarray, side: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Follows the rows from the cue over `steps` `[B]` images; images of one name `[B, S]` are taken for each other."""
    b = np.arange(len(names))[:, None]
    alike = (names[:, :, None] == names[:, None]).astype(np.float32)
    linked = np.zeros_like(alike)
    linked[b, rows[..., 0], rows[..., 1]] = 1
    hop = np.minimum(alike @ linked @ alike, 1)
    reached, out = hop, np.empty((len(names), 2))
    for count in range(int(steps.max()) + 1):
        costs = -np.minimum(reached[b, query[:, :1], query[:, 1:]], 1)
        out = np.where((steps == count)[:, None], costs, out)
        reached = np.minimum(reached @ hop, 1)
    return choose(out, side)


def lookups(data: Data, batches: int) -> dict[str, dict[str, float]]:
    """Accuracy of the three ways to look up, by type of query."""
    types = query_types(data.length)
    right: dict[str, list[np.ndarray]] = {"nearest row": [], "following images": [], "following classes": []}
    kinds = []
    for index in range(batches):
        drawn, _ = data.drawn("test", [index])
        inputs = {name: array[0] for name, array in data.batches("test", [index]).inputs.items()}
        kind, side = drawn.queries.kind[0], drawn.queries.side[0]
        steps = np.array([of.steps for of in types])[kind]
        right["nearest row"].append(nearest_row(inputs, side))
        for name, names in (("images", drawn.picks[0]), ("classes", data.source.labels("test", drawn.picks[0]))):
            right[f"following {name}"].append(following(names, inputs["rows"], inputs["query"], side, steps))
        kinds.append(kind)
    of = np.concatenate(kinds)
    return {
        way: {kind.name: float(np.concatenate(found)[of == i].mean()) for i, kind in enumerate(types)}
        for way, found in right.items()
    }


def measure(seed: int, length: int = 3, *, quick: bool = False) -> dict[str, Any]:
    """All numbers, as plain values."""
    images = Images(seed)
    data = Data(images, seed, EVAL_BATCH, length)
    less = QUICK if quick else 1
    batches = BATCHES // less
    probe, largest = linear_probe(images, PROBE_IMAGES // (2 if quick else 1), PROBE_TESTS // less // CLASSES * CLASSES)
    return {
        "seed": seed,
        "length": length,
        "classes": CLASSES,
        "groups": len(images.first),
        "linear_probe": probe,
        "largest_number": largest,
        "likeness": likeness(images, PAIR_IMAGES // (2 if quick else 1)),
        "memories_with_two_of_a_class": share_with_twins(data, 2 * batches),
        "lookups": lookups(data, batches),
        "queries": batches * EVAL_BATCH,
    }


def report(found: dict[str, Any]) -> str:
    """The numbers as lines."""
    alike = found["likeness"]
    pools = ", ".join(f"{name} {size}" for name, (_, size) in POOLS.items())
    lines = [
        f"images of seed {found['seed']}: {found['classes']} classes in {found['groups']} groups; {pools}",
        f"linear probe for the class, test images        {found['linear_probe']:8.2%}",
        f"the largest number names the class             {found['largest_number']:8.2%}",
        "cosine of two images, mean (deviation)         "
        + ", ".join(
            f"{name} class {alike[name][0]:.2f} ({alike[name][1]:.2f})" for name in ("same", "confusable", "other")
        ),
        f"a pair of one class is less alike than of two  {alike['same_below_confusable']:8.2%} confusable, "
        f"{alike['same_below_other']:.2%} other",
        f"memories with two images of one class          {found['memories_with_two_of_a_class']:8.2%} "
        f"({SEQUENCES} sequences of {found['length']})",
    ]
    for way, accuracy in found["lookups"].items():
        lines.append(f"{way:<46} " + ", ".join(f"{name} {value:.2%}" for name, value in accuracy.items()))
    return "\n".join([*lines, f"look-ups over {found['queries']} test queries, half of them direct"])


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    p = Parser(prog="python -m tasks.pai.difficulty", description="How hard the generated task is, without any model.")
    p.add_argument("--seed", metavar="N", default="0", help="of the images and memories (default 0)")
    p.add_argument("--length", metavar="L", default="3", help="images in a sequence: 3, 4 or 5 (default 3)")
    p.add_argument("--quick", action="store_true", help="fewer images and queries")
    p.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = p.parse(arguments)
    ranges = {"seed": Integer(0, MAX_SEED), "length": Integer(LENGTHS[0], LENGTHS[-1])}
    found = measure(**{name: flag_value(options, name, of) for name, of in ranges.items()}, quick=options.quick)
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
