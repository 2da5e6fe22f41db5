"""The words and answers of all twenty tasks, in lower case, as the paper's appendix prepares them.

Periods and question marks are dropped, blanks separate words. An answer is one class as a whole: commas are kept.
"""

import functools

from ponder_ref.checks import quoted
from tasks.babi.stories import Question

PADDING = 0  # the number of no word; words count from 1, answers from 0

WORD_LIST = """
a above afraid after afternoon afterwards and antoine apple are back bathroom bedroom before below bernhard
bigger bill blue bored box brian carrying cat cats chest chocolate chocolates cinema color container daniel did
discarded do does down dropped east either emily evening fit fits following football fred frog from garden gave
gertrude get give go got grabbed gray green greg hallway handed he how hungry in inside is jason jeff jessica
john journeyed julie julius kitchen left lily lion longer many mary mice milk morning mouse moved no north not
objects of office or pajamas park passed picked pink put received rectangle red rhino right sandra school she
sheep south sphere square suitcase sumit swan than that the then there they thirsty this tired to took travelled
triangle up was went west what where white who why will winona wolf wolves yann yellow yesterday you
"""

ANSWER_LIST = """
apple apple,football apple,football,milk apple,milk apple,milk,football bathroom bedroom bill bored cat cinema
e,e e,n e,s football football,apple football,apple,milk football,milk football,milk,apple fred garden gray green
hallway hungry jeff kitchen mary maybe milk milk,apple milk,apple,football milk,football milk,football,apple
mouse n,e n,n n,w no none nothing office one park s,e s,s s,w school sheep thirsty three tired two w,n w,s w,w
white wolf yellow yes
"""

WORDS = tuple(WORD_LIST.split())
ANSWERS = tuple(ANSWER_LIST.split())
WORD_NUMBERS = {word: number for number, word in enumerate(WORDS, start=1)}
ANSWER_NUMBERS = {answer: number for number, answer in enumerate(ANSWERS)}
MAX_WORDS = 11  # in a sentence or question


@functools.lru_cache(maxsize=100_000)
def sentence_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a sentence's words, padded with zeros to 11. ValueError names what is not of these tasks.

    >>> sentence_numbers("Where is Mary?")[:4] == (*(WORD_NUMBERS[w] for w in ("where", "is", "mary")), PADDING)
    True
    """
    words = text.lower().replace(".", " ").replace("?", " ").split()
    if not words or len(words) > MAX_WORDS:
        raise ValueError(f"a sentence has 1 to {MAX_WORDS} words, got {len(words)}")
    for word in words:
        if word not in WORD_NUMBERS:
            raise ValueError(f"{quoted(word)} is not a word of the bAbI tasks")
    return tuple(WORD_NUMBERS[word] for word in words) + (PADDING,) * (MAX_WORDS - len(words))


def answer_number(answer: str) -> int:
    """The class of an answer; ValueError if it is none."""
    try:
        return ANSWER_NUMBERS[answer.lower()]
    except KeyError:
        raise ValueError(f"{quoted(answer)} is not an answer of the bAbI tasks") from None


def check_line(line: str | Question) -> None:
    """ValueError for a statement or question with other words, or with another answer."""
    if isinstance(line, str):
        sentence_numbers(line)
    else:
        sentence_numbers(line.text)
        answer_number(line.answer)
