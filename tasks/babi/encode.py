"""Stories as integer arrays: what a model takes, padded no further than the bucket of an example's length.

The statements of all stories stand once, one after another; the context of a question is a run of them. So a table is
small, and a batch of any bucket is gathered from it when it is wanted. As in the paper's appendix a story keeps its
most recent 320 statements of at most 11 words; 0 is padding.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tasks.babi.files import Source
from tasks.babi.generate import generated
from tasks.babi.stories import Question, Story
from tasks.babi.vocabulary import ANSWERS, MAX_WORDS, PADDING, answer_number, sentence_numbers

MAX_SENTENCES = 320
BUCKETS = (
    2,
    6,
    10,
    16,
    32,
    64,
    128,
    240,
    MAX_SENTENCES,
)  # sentences; those of an example are padded to the next of these
CLASSES = len(ANSWERS)


class Inputs(NamedTuple):
    """What a model sees of a batch whose bucket has L sentences.

    sentences `[..., L, 11]` uint8: word numbers, 0 beyond a sentence's end; row 0 is the oldest, rows from the length
    on are 0. lengths `[...]` int32: sentences of the example. questions `[..., 11]` uint8.
    """

    sentences: np.ndarray
    lengths: np.ndarray
    questions: np.ndarray


class Table(NamedTuple):
    """Questions with their contexts, of one task or of many.

    sentences `[S, 11]` uint8: the statements of all stories; starts, stops `[Q]` int64: the rows that question q sees;
    questions `[Q, 11]` uint8; answers `[Q]` int64: classes; tasks `[Q]` int64: 1 to 20.
    """

    sentences: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    questions: np.ndarray
    answers: np.ndarray
    tasks: np.ndarray

    def lengths(self) -> np.ndarray:
        return self.stops - self.starts


def encode(stories: Iterable[Story], task: int) -> Table:
    """The table of a task's stories. ValueError names a word or answer that is not of these tasks."""
    sentences: list[tuple[int, ...]] = []
    starts, stops, questions, answers = [], [], [], []
    for story in stories:
        first = len(sentences)
        for line in story.lines:
            if isinstance(line, Question):
                starts.append(max(first, len(sentences) - MAX_SENTENCES))
                stops.append(len(sentences))
                questions.append(sentence_numbers(line.text))
                answers.append(answer_number(line.answer))
            else:
                sentences.append(sentence_numbers(line))
    return Table(
        np.array(sentences, np.uint8).reshape(-1, MAX_WORDS),
        np.array(starts, np.int64),
        np.array(stops, np.int64),
        np.array(questions, np.uint8).reshape(-1, MAX_WORDS),
        np.array(answers, np.int64),
        np.full(len(answers), task, np.int64),
    )


def join(tables: Sequence[Table]) -> Table:
    """One table of several, the questions in the order of the tables."""
    offsets = np.cumsum([0, *(len(table.sentences) for table in tables)])
    moved = [
        table._replace(starts=table.starts + offset, stops=table.stops + offset)
        for table, offset in zip(tables, offsets[:-1], strict=True)
    ]
    return Table(*(np.concatenate(arrays) for arrays in zip(*moved, strict=True)))


def generated_table(tasks: Iterable[int], split: str, questions: int, seed: int, part: int = 0) -> Table:
    """Generated stories of these tasks, this many questions each; another part has other stories, without end.

    Twenty tasks of 10,000 questions take some ten seconds.
    """
    return join([encode(generated(task, split, questions, seed, part), task) for task in tasks])


def loaded_table(source: Source, tasks: Iterable[int], split: str) -> Table:
    """The stories of these tasks in the released files."""
    return join([encode(source.stories(task, split), task) for task in tasks])


def cut(table: Table, sentences: int) -> Table:
    """The same questions with no more than the last so many sentences before each."""
    return table._replace(starts=np.maximum(table.starts, table.stops - sentences))


def buckets_up_to(sentences: int) -> tuple[int, ...]:
    """The buckets of a model that reads so many sentences at most: the last one is as long as its longest story.

    >>> buckets_up_to(10), buckets_up_to(12)
    ((2, 6, 10), (2, 6, 10, 12))
    """
    return (*(size for size in BUCKETS if size < sentences), sentences)


def buckets_of(lengths: np.ndarray, buckets: Sequence[int] = BUCKETS) -> np.ndarray:
    """The index of the smallest bucket that holds each length."""
    found = np.searchsorted(np.asarray(buckets), lengths)
    if np.any(found == len(buckets)):
        raise ValueError(f"no bucket of {tuple(buckets)} holds {int(np.max(lengths))} sentences")
    return found


def gather(table: Table, ids: np.ndarray, size: int) -> Inputs:
    """The inputs of the questions `ids [...]`, padded to `size` sentences; none may have more."""
    starts, lengths = table.starts[ids], (table.stops - table.starts)[ids]
    if lengths.size and int(lengths.max()) > size:
        raise ValueError(f"a story of {int(lengths.max())} sentences does not go into {size}")
    place = np.arange(size)
    told = place < lengths[..., None]
    rows = np.where(told, starts[..., None] + place, 0)
    sentences = np.where(told[..., None], table.sentences[rows], np.uint8(PADDING))
    return Inputs(sentences, lengths.astype(np.int32), table.questions[ids])
