"""Answers questions about stories that are typed or piped in, and shows how the model ponders over each.

    python -m tasks.babi.ask --run runs/babi < story.txt

A line that ends in a question mark is a question about the lines before it; an empty line begins a new story. Computed
by the NumPy reference, so that no framework is needed.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from re import sub
from typing import NamedTuple, TextIO

import numpy as np

import ponder_ref
from ponder_ref.settings import Transformer
from ponder_ref.transformer import transformer_encode, transformer_readout, transformer_transition
from tasks.babi.task import Babi, BabiConfig
from tasks.babi.vocabulary import ANSWERS, sentence_numbers
from tasks.config import Parser
from tasks.errors import Refused
from tasks.runs import Run


class Thought(NamedTuple):
    """One step: chance of halting there, its best answer and the chance that the step gives it."""

    chance: float
    answer: str
    belief: float


def ponder(
    params: dict[str, np.ndarray], model: Transformer, rows: Sequence[Sequence[int]], steps: int
) -> list[Thought]:
    """All steps of the model on a story: rows of word numbers, the question last."""
    words = np.array([rows], np.int64)
    h = transformer_encode(params, words)
    predictions, logits = [], []
    for n in range(1, steps + 1):
        h = transformer_transition(params, words, h, n, heads=model.heads)
        y_hat, z = transformer_readout(params, h)
        predictions.append(y_hat[0])
        logits.append(z[0])
    chances = np.exp(ponder_ref.log_halting(np.array(logits)))
    beliefs = np.exp(predictions - np.logaddexp.reduce(predictions, axis=-1, keepdims=True))
    best = beliefs.argmax(-1)
    return [
        Thought(float(p), ANSWERS[k], float(belief[k])) for p, k, belief in zip(chances, best, beliefs, strict=True)
    ]


def verdict(thoughts: Sequence[Thought]) -> tuple[str, float]:
    """The answer that is most likely to be given, and the mean number of steps."""
    chances: dict[str, float] = {}
    for thought in thoughts:
        chances[thought.answer] = chances.get(thought.answer, 0.0) + thought.chance
    return max(chances, key=chances.__getitem__), sum(n * thought.chance for n, thought in enumerate(thoughts, 1))


def show(thoughts: Sequence[Thought]) -> list[str]:
    """The steps as a table with a bar for the chance of halting, and the verdict."""
    lines = ["  step  halts here             answer"]
    for n, thought in enumerate(thoughts, 1):
        bar = "#" * round(20 * thought.chance)
        lines.append(f"  {n:>4}  {thought.chance:5.3f} {bar:<20} {thought.answer} ({thought.belief:.3f})")
    answer, steps = verdict(thoughts)
    return [*lines, f"answer: {answer} (mean of {steps:.2f} steps)"]


def questions(lines: Iterable[str], longest: int) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Every question with its rows of word numbers, the story's most recent sentences and the question."""
    story: list[tuple[int, ...]] = []
    for number, line in enumerate(lines, start=1):
        text = sub(r"^\d+\s+", "", line.strip()).split("\t")[0].strip()  # the released format has numbers and answers
        if not text:
            story = []
            continue
        try:
            row = sentence_numbers(text)
        except ValueError as error:
            raise Refused(f"line {number}: {error}") from None
        if text.endswith("?"):
            yield text, [*story[-longest:], row]
        else:
            story.append(row)


def load(folder: Path) -> tuple[BabiConfig, dict[str, np.ndarray]]:
    """Config and parameters of a run's newest checkpoint, in float64."""
    run = Run.open(folder, Babi.NAME, BabiConfig)
    found = run.load()
    if found is None:
        raise Refused(f"there is no checkpoint in {run.checkpoints}")
    prefix = "params."
    arrays = {name.removeprefix(prefix): x for name, x in found.arrays.items() if name.startswith(prefix)}
    return run.config, {name: np.asarray(x, np.float64) for name, x in arrays.items()}


def main(arguments: Sequence[str] | None = None, source: TextIO | None = None) -> int:
    parser = Parser(prog="python -m tasks.babi.ask", description=__doc__)
    parser.add_argument("--run", required=True, metavar="RUN", help="a run folder of python -m tasks.babi")
    try:
        options = parser.parse(arguments)
        config, params = load(Path(options.run))
        asked = 0
        for question, rows in questions(source or sys.stdin, config.sentences):
            asked += 1
            print("\n".join([question, *show(ponder(params, config.model_settings(), rows, config.max_steps))]))
        if not asked:
            raise Refused("there is no question: a line that ends in a question mark is one")
    except Refused as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
