"""What fits into what: task 18.

A chocolate is smaller than a box of chocolates, which is smaller than the four big things; their order is the story's
own. Five relations are told, any pair of things each time. A question draws a relation and a direction, and then the
first other statement about the thing in the middle; it is asked if the two make a chain. After too many vain draws
five more relations are told, until five questions in a row have come.
"""

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import Telling

SMALL = ("chocolate", "box of chocolates")
BIG = ("suitcase", "chest", "container", "box")
BLOCK = 5
QUESTIONS = 5
TRIES = 8  # vain draws per statement told


def chains(pairs: list[tuple[str, str]]) -> dict[tuple[int, bool], int]:
    """For relations (bigger, smaller): which statement continues statement k downwards (True) or upwards (False).

    It is the first other statement that names the thing in the middle, and must lead on; else there is no entry.
    """
    found = {}
    for k, (bigger, smaller) in enumerate(pairs):
        for down, middle in ((True, smaller), (False, bigger)):
            partner = next((j for j, pair in enumerate(pairs) if j != k and middle in pair), None)
            if partner is not None and pairs[partner][0 if down else 1] == middle:
                found[k, down] = partner
    return found


def size_reasoning(draws: Draws) -> Story:
    told = Telling()
    order = [*SMALL, *draws.shuffled(BIG)]
    pairs: list[tuple[str, str]] = []
    lines: list[int] = []
    while True:
        for _ in range(BLOCK):
            first = draws.choice(order)
            smaller, bigger = sorted((first, draws.other(order, first)), key=order.index)
            pairs.append((bigger, smaller))
            bigger_first = draws.below(2)
            text = (
                f"The {bigger} is bigger than the {smaller}."
                if bigger_first
                else (f"The {smaller} fits inside the {bigger}.")
            )
            lines.append(told.state(text))
        if (found := chains(pairs)) and ask(draws, told, pairs, lines, found):
            return told.story()


def ask(
    draws: Draws,
    told: Telling,
    pairs: list[tuple[str, str]],
    lines: list[int],
    found: dict[tuple[int, bool], int],
) -> bool:
    """Five questions, each if one is found in time; whether all were."""
    asked = 0
    for _ in range(QUESTIONS):
        for _ in range(TRIES * len(pairs)):
            k, down = draws.below(len(pairs)), bool(draws.below(2))
            if (k, down) in found:
                break
        else:
            continue
        partner = found[k, down]
        # Downwards: from the bigger thing of k to the smaller one of the partner; upwards the other way.
        start, end = (pairs[k][0], pairs[partner][1]) if down else (pairs[k][1], pairs[partner][0])
        text = f"Is the {start} bigger than the {end}?" if draws.below(2) else f"Does the {end} fit in the {start}?"
        told.ask(text, "yes" if down else "no", lines[k], lines[partner])
        asked += 1
    return asked == QUESTIONS
