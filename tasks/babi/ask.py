"""Answers questions about stories that are typed or piped in, and shows how the model ponders over each.

    python -m tasks.babi.ask < story.txt

A line that ends in a question mark is a question about the lines before it; an empty line begins a new story, and so
does a line with number 1, or one that is not above the number before (the released files are numbered so).
Computed by the NumPy reference, so that no framework is needed. The model is the shipped one, or that of a run (--run).
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from re import match
from typing import NamedTuple, TextIO

import numpy as np

import ponder_ref
from ponder_ref.net import PonderNet
from ponder_ref.runtime.errors import Refused, one_sentence, say
from tasks.babi.task import Babi
from tasks.babi.vocabulary import ANSWERS, sentence_numbers
from tasks.flags import Parser
from tasks.runs import PRETRAINED, open_trained

HINT = "a story, a sentence a line; a line that ends in ? asks; an empty line begins a new story; Ctrl-D ends"


class Thought(NamedTuple):
    """One step: chance of halting there, its best answer and the chance that the step gives it."""

    chance: float
    answer: str
    belief: float


def ponder(net: PonderNet, rows: Sequence[Sequence[int]]) -> list[Thought]:
    """All steps of the network on a story: rows of word numbers, the question last."""
    out = net(np.array([rows], np.int64))
    chances, predictions = np.exp(out.log_p[:, 0]), out.y_hat[:, 0]
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


def refuse(error: Refused) -> None:
    raise error


def questions(
    lines: Iterable[str], longest: int, complain: Callable[[Refused], None] = refuse
) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Every question with its rows of word numbers, the story's most recent sentences and the question.

    A line with other words than those of the tasks is refused; it is left out if `complain` returns.
    """
    story: list[tuple[int, ...]] = []
    before = 0
    for number, line in enumerate(lines, start=1):
        text = line.strip().split("\t")[0].strip()  # the released format has numbers and answers
        if not text:
            story, before = [], 0
            continue
        if found := match(r"([0-9]{1,9})\s+", text):
            text, own = text[found.end() :], int(found[1])
            if own == 1 or own <= before:
                story = []
            before = own
        try:
            row = sentence_numbers(text)
        except ValueError as error:
            complain(Refused(f"line {number}: {error}"))
            continue
        if text.endswith("?"):
            yield text, [*story[-longest:], row]
        else:
            story.append(row)


def load(name: str) -> tuple[int, PonderNet]:
    """The longest story and the network of a run's newest checkpoint or of the shipped one."""
    run, _ = open_trained(Babi, name)
    if run.config.method != "ponder":
        raise Refused(f"--run {name} is a run of --method {run.config.method}: its steps have no chance of halting")
    try:
        return run.config.sentences, ponder_ref.load(run.folder)
    except ValueError as error:
        raise Refused(str(error)) from None


def answer(name: str, source: TextIO) -> None:
    """Answers every question of the source as it comes; at a terminal a wrong line is said and left out."""
    longest, net = load(name)
    typed = source.isatty()
    if typed:
        say(HINT)
    found = questions(source, longest, say if typed else refuse)
    asked = False
    for question, rows in found:
        asked = True
        print("\n".join([question, *show(ponder(net, rows))]), flush=True)
    if not asked:
        raise Refused("there is no question: a line that ends in a question mark is one")


@one_sentence
def main(arguments: Sequence[str] | None = None, source: TextIO | None = None) -> int:
    parser = Parser(prog="python -m tasks.babi.ask", description=__doc__)
    parser.add_argument(
        "--run",
        default=PRETRAINED,
        metavar="RUN",
        help="a run folder of python -m tasks.babi (default the shipped one)",
    )
    name = parser.parse(arguments).run
    source = source or sys.stdin
    if source is None:
        raise Refused("there is no story: standard input is closed")
    try:
        answer(name, source)
    except UnicodeDecodeError:
        raise Refused("the story is not text in UTF-8") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
