"""Answers by the rules of each task, from the text alone: the acceptance test of a generator or of a file.

It shares nothing with the generator but the language. Text and answers are in lower case, without marks.
"""

from collections.abc import Callable, Sequence

from tasks.babi.solve import people, relations
from tasks.babi.stories import Story, examples

Words = tuple[str, ...]
RULES: dict[int, Callable[[Sequence[Words], Words], str | None]] = {
    1: people.where_is,
    2: people.where_is_thing,
    3: people.where_was_thing,
    4: relations.neighbour,
    5: people.who_gave_what,
    6: people.is_in,
    7: people.how_many,
    8: people.carrying,
    9: people.is_in,
    10: people.is_in,
    11: people.where_is,
    12: people.where_is,
    13: people.where_is,
    14: people.where_was,
    15: relations.afraid_of,
    16: relations.colour_of,
    17: relations.is_placed,
    18: relations.is_bigger,
    19: relations.path,
    20: relations.motive,
}


def plain(text: str) -> Words:
    """The words of a sentence in lower case without its mark."""
    return tuple(text.rstrip(".?").lower().split())


def answer(task: int, statements: Sequence[str], question: str) -> str | None:
    """The answer to a question, in lower case; None if the rules give none."""
    return RULES[task]([plain(text) for text in statements], plain(question))


def count_right(task: int, stories: Sequence[Story]) -> tuple[int, int]:
    """How many questions the rules answer as the stories do, and how many there are."""
    right = total = 0
    for story in stories:
        words = [plain(text) for text in story.statements()]
        for example in examples(story):
            found = RULES[task](words[: example.above], plain(example.question.text))
            right += found == example.question.answer.lower()
            total += 1
    return right, total
