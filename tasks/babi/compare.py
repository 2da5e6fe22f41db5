"""Is one set of stories drawn like another? Chi-square tests of templates, answers, lengths and support distances.

    python -m tasks.babi.compare --data-dir DIR          generated stories against the released training files

What stands in one story hangs together, so stories are the units: the covariance of the shares is estimated from
story to story (a Wald test, which is Pearson's chi-square where every story has one observation).
"""

import functools
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ponder_ref.runtime.errors import Refused, one_sentence
from tasks.babi.stories import Story, examples

LEVEL = 1e-3  # a corrected p below this means that the stories are not drawn alike
MOST = 5 * 10**7  # statements above all questions of a task: the rules read them for each question
RARE = 20  # stories in which a category must occur, else it is counted with other rare ones
SLOTS = {
    "{PERSON}": "Antoine Bernhard Bill Brian Daniel Emily Fred Gertrude Greg Jason Jeff Jessica John Julie Julius Lily "
    "Mary Sandra Sumit Winona Yann antoine emily gertrude jason jessica sumit winona yann",
    "{PLACE}": "bathroom bedroom cinema garden hallway kitchen office park school",
    "{THING}": "apple football milk pajamas triangle square rectangle sphere box chest container suitcase chocolate",
    "{KIND}": "mouse sheep wolf cat mice wolves cats swan lion frog rhino",
    "{COLOR}": "gray white green blue pink red yellow",
    "{STATE}": "hungry thirsty bored tired",
}
SLOT_OF = {word: slot for slot, words in SLOTS.items() for word in words.split()}


class Result(NamedTuple):
    """A chi-square statistic, its degrees of freedom and the chance of one at least as large."""

    statistic: float
    freedom: int
    p: float


def chi_square_tail(statistic: float, freedom: int) -> float:
    """P(χ² ≥ statistic) = Q(freedom/2, x) for x = statistic/2, by Q(a + 1, x) = Q(a, x) + xᵃe⁻ˣ/Γ(a + 1).

    It begins with Q(0, x) = 0 for even freedom, and with Q(1/2, x) = erfc √x for odd.

    >>> round(chi_square_tail(3.841458820694124, 1), 12)
    0.05
    """
    x, odd = statistic / 2, freedom % 2
    if x <= 0:
        return 1.0
    terms = (math.exp(a * math.log(x) - x - math.lgamma(a + 1)) for a in np.arange(odd / 2, freedom / 2))
    return (math.erfc(math.sqrt(x)) if odd else 0.0) + sum(terms)


@functools.cache
def template(text: str) -> str:
    """A sentence with slots for its names; a coloured shape is one slot.

    >>> template("Mary travelled to the kitchen.")
    '{PERSON} travelled to the {PLACE}.'
    """
    slots = " ".join(SLOT_OF.get(word, word) for word in text[:-1].split()) + text[-1]
    return slots.replace("{COLOR} {THING}", "{THING}")


def distance_bin(distance: int) -> int:
    """Distances up to 9 are told apart, longer ones in ever wider bins."""
    return distance if distance < 10 else next((edge for edge in (14, 19, 29, 49) if distance <= edge), 50)


def length_bin(length: int) -> int:
    """Lengths up to 19 are told apart, longer ones by tens up to 100 and by fifties."""
    return length if length < 20 else length - length % (10 if length < 100 else 50)


def features(story: Story) -> dict[str, Counter]:
    """How often each category occurs in a story, for each of the four features."""
    made = list(examples(story))
    templates = Counter(map(template, story.statements()))
    templates.update(template(example.question.text) for example in made)
    distances: Counter = Counter()
    for example in made:
        here = example.above - 1
        distances["supports", len(example.facts)] += 1
        distances.update((position, distance_bin(here - fact)) for position, fact in enumerate(example.facts[:3]))
    return {
        "templates": templates,
        "answers": Counter(example.question.answer for example in made),
        "lengths": Counter([length_bin(len(story.statements()))]),
        "distances": distances,
    }


def share_tables(first: Sequence[Counter], second: Sequence[Counter]) -> tuple[np.ndarray, np.ndarray]:
    """Counts `[stories, categories]` of both; categories that are rare in either are counted as one."""
    present = [Counter(category for story in sample for category in story) for sample in (first, second)]
    common = [key for key in present[0] if min(found[key] for found in present) >= RARE]
    index = {key: i for i, key in enumerate(sorted(common, key=repr))}
    tables = []
    for sample in (first, second):
        table = np.zeros((len(sample), len(index) + 1))
        for row, story in zip(table, sample, strict=True):
            for category, count in story.items():
                row[index.get(category, -1)] += count
        tables.append(table)
    return tables[0], tables[1]


def two_sample(first: Sequence[Counter], second: Sequence[Counter]) -> Result:
    """Whether the categories have equal shares in both, with stories as units."""
    difference = covariance = 0.0
    for table, sign in zip(share_tables(first, second), (1, -1), strict=True):
        total = table.sum()
        shares = table.sum(axis=0) / total
        rest = table - table.sum(axis=1, keepdims=True) * shares
        difference = difference + sign * shares
        covariance = covariance + rest.T @ rest / total**2
    difference, covariance = np.asarray(difference), np.asarray(covariance)
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-9 * max(values.max(), np.finfo(float).tiny)
    freedom = int(kept.sum())
    if freedom == 0:  # one category, or the same counts in every story: the shares must simply be equal
        equal = bool(np.allclose(difference, 0, atol=1e-12))
        return Result(0.0 if equal else math.inf, 0, 1.0 if equal else 0.0)
    along = (difference @ vectors)[kept]
    statistic = float((along**2 / values[kept]).sum())
    return Result(statistic, freedom, chi_square_tail(statistic, freedom))


def compare(first: Iterable[Story], second: Iterable[Story]) -> dict[str, Result]:
    """The test of each feature; the samples are of one task."""
    made = [list(map(features, stories)) for stories in (first, second)]
    return {name: two_sample(*([story[name] for story in sample] for sample in made)) for name in made[0][0]}


def check_work(task: int, stories: Iterable[Story]) -> None:
    """Refuses stories for which the rules would take hours; of the released ones each task has some 10⁵ to 10⁶."""
    work = sum(example.above for story in stories for example in examples(story))
    if work > MOST:
        raise Refused(
            f"task {task} has too much above its questions: {work} statements if each is counted for every question "
            f"below it, at most {MOST} are read"
        )


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    from tasks.babi import solve
    from tasks.babi.files import open_source
    from tasks.babi.generate import QUESTIONS, SEEDS, generated, parse_tasks
    from tasks.flags import Parser, flag_value

    parser = Parser(prog="python -m tasks.babi.compare", description="Tests generated stories against files.")
    parser.add_argument("--data-dir", required=True, metavar="DIR", help="folder or .tar.gz of the released data")
    parser.add_argument("--split", default="train", help="train, valid or test (default train)")
    parser.add_argument("--task", default="1-20", help="such as 1-20 or 2,3,15 (default 1-20)")
    parser.add_argument("--questions", default="10000", help="generated per task (default 10000)")
    parser.add_argument("--seed", default="0", help="default 0")
    options = parser.parse(arguments)
    source, tasks = open_source(options.data_dir), parse_tasks(options.task)
    questions, seed = flag_value(options, "questions", QUESTIONS), flag_value(options, "seed", SEEDS)
    smallest, tests = 1.0, 0
    for task in tasks:
        real = source.stories(task, options.split)
        check_work(task, real)
        results = compare(real, generated(task, "train", questions, seed))
        smallest = min(smallest, *(result.p for result in results.values()))
        tests += sum(result.freedom > 0 for result in results.values())  # where all stories are alike, nothing varies
        cells = (f"{name} χ²({r.freedom}) {r.statistic:.1f} p {r.p:.2g}" for name, r in results.items())
        right, total = solve.count_right(task, real)
        print(f"task {task}, {len(real)} stories, {right} of {total} answered by the rules: {'; '.join(cells)}")
    corrected = min(1.0, smallest * max(1, tests))
    print(f"smallest p, corrected for {tests} tests: {corrected:.2g}")
    return 0 if corrected > LEVEL else 1


if __name__ == "__main__":
    sys.exit(main())
