"""Who was where before: task 14, told in disorder.

Each person's visits are yesterday, this morning, this afternoon, this evening, in that order, each to another place
than the one before. Visits are made two at a time until somebody has two; these are told in a mixed order (one cycle
through all, so that none keeps its place), then a question follows. Four more pairs follow, told the wrong way round,
each with a question. Asked is one of the last five visits, as they were made, that has one before it.
"""

from typing import NamedTuple

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.moving import NEIGHBOURS, QUESTIONS
from tasks.babi.worlds.telling import MOVE, TOWN, WINDOW, Telling

TIMES = ("yesterday", "this morning", "this afternoon", "this evening")


class Visit(NamedTuple):
    person: str
    place: str
    time: int


def make_visit(draws: Draws, made: dict[str, list[Visit]]) -> Visit:
    """The next visit of somebody who has not spent all four times."""
    person = draws.choice([person for person in NEIGHBOURS if len(made[person]) < len(TIMES)])
    before = made[person]
    place = draws.other(TOWN, before[-1].place) if before else draws.choice(TOWN)
    before.append(Visit(person, place, len(before)))
    return before[-1]


def sentence(draws: Draws, visit: Visit) -> str:
    time = TIMES[visit.time]
    if draws.below(2):
        return f"{time.capitalize()} {visit.person} {draws.choice(MOVE)} the {visit.place}."
    return f"{visit.person} {draws.choice(MOVE)} the {visit.place} {time}."


def time_reasoning(draws: Draws) -> Story:
    told = Telling()
    made: dict[str, list[Visit]] = {person: [] for person in NEIGHBOURS}
    recent: list[Visit] = []
    lines: dict[Visit, int] = {}
    for _ in range(QUESTIONS):
        fresh = [make_visit(draws, made), make_visit(draws, made)]
        while all(len(visits) < 2 for visits in made.values()):
            fresh += [make_visit(draws, made), make_visit(draws, made)]
        for visit in draws.cycled(fresh):
            lines[visit] = told.state(sentence(draws, visit))
        recent += fresh
        # Of five visits by four persons one is a second one, so that there is something to ask.
        asked = draws.choice([visit for visit in recent[-WINDOW:] if visit.time])
        visits = made[asked.person]
        last = max(visit.time for visit in visits if visit.place == asked.place)
        text = f"Where was {asked.person} before the {asked.place}?"
        told.ask(text, visits[last - 1].place, lines[visits[last]], lines[visits[last - 1]])
    return told.story()
