"""What a bAbI story is: statements and questions in the order of the file.

Lines are numbered from 1 in each story, questions included; supporting facts are given by these numbers, as in the
released files. The context of a question is every statement above it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

TASK_NAMES = {
    1: "single-supporting-fact",
    2: "two-supporting-facts",
    3: "three-supporting-facts",
    4: "two-arg-relations",
    5: "three-arg-relations",
    6: "yes-no-questions",
    7: "counting",
    8: "lists-sets",
    9: "simple-negation",
    10: "indefinite-knowledge",
    11: "basic-coreference",
    12: "conjunction",
    13: "compound-coreference",
    14: "time-reasoning",
    15: "basic-deduction",
    16: "basic-induction",
    17: "positional-reasoning",
    18: "size-reasoning",
    19: "path-finding",
    20: "agents-motivations",
}
TASKS = tuple(TASK_NAMES)
SPLITS = ("train", "valid", "test")


class Question(NamedTuple):
    """A question ("Where is Mary?"), its answer as one string ("milk,apple"), the numbers of the supporting lines."""

    text: str
    answer: str
    supports: tuple[int, ...]


class Story(NamedTuple):
    """The lines of a story: a statement is a string ("Mary moved to the bathroom."), a question a `Question`."""

    lines: tuple[str | Question, ...]

    def statements(self) -> list[str]:
        return [line for line in self.lines if isinstance(line, str)]

    def questions(self) -> list[Question]:
        return [line for line in self.lines if isinstance(line, Question)]


class Example(NamedTuple):
    """A question and the number of statements above it, which are its context.

    `facts` are the supports as indices into the story's statements, as ordered in the file.
    """

    above: int
    question: Question
    facts: tuple[int, ...]


def examples(story: Story) -> Iterator[Example]:
    """The questions of a story, each with how much of it lies above."""
    index: dict[int, int] = {}  # of the statement in each line
    for number, line in enumerate(story.lines, start=1):
        if isinstance(line, str):
            index[number] = len(index)
        else:
            yield Example(len(index), line, tuple(index[support] for support in line.supports))


def first_questions(stories: Iterable[Story], count: int) -> Iterator[Story]:
    """The beginning of the stories with exactly `count` questions, if there are that many: the last story is cut."""
    for story in stories:
        here = [number for number, line in enumerate(story.lines, start=1) if isinstance(line, Question)]
        if len(here) >= count:
            if count:
                yield Story(story.lines[: here[count - 1]])
            return
        count -= len(here)
        yield story
