"""Persons who change places: tasks 1 and 9 to 13.

Statements come in pairs, a question follows each pair, five in a story. Everybody has a hidden place at the start and
always moves to another one. A question draws one of the last five statements and asks about its person as things
stand now, so that the support is that person's latest statement.
"""

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import HOUSE, MOVE, TOWN, WINDOW, Telling

PEOPLE = ("Daniel", "John", "Mary", "Sandra")
NEIGHBOURS = ("Bill", "Fred", "Julie", "Mary")
PRONOUNS = {"Daniel": "he", "John": "he", "Mary": "she", "Sandra": "she"}
LATER = ("Then", "Afterwards", "After that", "Following that")
QUESTIONS = 5


def hidden_places(draws: Draws, people: tuple[str, ...], places: tuple[str, ...]) -> dict[str, str]:
    return {person: draws.choice(places) for person in people}


def single_fact(draws: Draws) -> Story:
    """Task 1: who is where."""
    told, at = Telling(), hidden_places(draws, PEOPLE, HOUSE)
    recent: list[str] = []
    latest: dict[str, int] = {}
    for _ in range(QUESTIONS):
        for _ in range(2):
            person = draws.choice(PEOPLE)
            at[person] = draws.other(HOUSE, at[person])
            latest[person] = told.state(f"{person} {draws.choice(MOVE)} the {at[person]}.")
            recent.append(person)
        asked = draws.choice(recent[-WINDOW:])
        told.ask(f"Where is {asked}?", at[asked], latest[asked])
    return told.story()


def negation(draws: Draws) -> Story:
    """Task 9: a move is told as such (1/2), as the new place (1/4) or as a place that the person has left (1/4).

    Who has left a place is asked for that place; anybody else for the right place or another, with equal chance.
    """
    told, at = Telling(), hidden_places(draws, PEOPLE, HOUSE)
    recent: list[str] = []
    latest: dict[str, tuple[int, str, bool]] = {}
    for _ in range(QUESTIONS):
        for _ in range(2):
            person, kind = draws.choice(PEOPLE), draws.below(8)
            before, at[person] = at[person], draws.other(HOUSE, at[person])
            left = kind >= 6
            if left:
                text = f"{person} is {'not' if kind == 6 else 'no longer'} in the {before}."
            elif kind >= 4:
                text = f"{person} is in the {at[person]}."
            else:
                text = f"{person} {draws.choice(MOVE)} the {at[person]}."
            latest[person] = (told.state(text), before if left else at[person], left)
            recent.append(person)
        asked = draws.choice(recent[-WINDOW:])
        line, place, left = latest[asked]
        right = bool(draws.below(2))
        about = place if left or right else draws.other(HOUSE, place)
        told.ask(f"Is {asked} in the {about}?", "yes" if right and not left else "no", line)
    return told.story()


def indefinite(draws: Draws) -> Story:
    """Task 10: a quarter of the moves is told as two places, the new one and any one of all six, in either order."""
    told, at = Telling(), hidden_places(draws, NEIGHBOURS, TOWN)
    recent: list[str] = []
    latest: dict[str, tuple[int, tuple[str, ...]]] = {}
    for _ in range(QUESTIONS):
        for _ in range(2):
            person, kind = draws.choice(NEIGHBOURS), draws.below(4)
            at[person] = place = draws.other(TOWN, at[person])
            named: tuple[str, ...] = (place,)
            if kind == 3:
                named = (place, draws.choice(TOWN)) if draws.below(2) else (draws.choice(TOWN), place)
                text = f"{person} is either in the {named[0]} or the {named[1]}."
            elif kind == 2:
                text = f"{person} is in the {place}."
            else:
                text = f"{person} {draws.choice(MOVE)} the {place}."
            latest[person] = (told.state(text), named)
            recent.append(person)
        asked = draws.choice(recent[-WINDOW:])
        line, named = latest[asked]
        about = at[asked] if draws.below(2) else draws.other(TOWN, at[asked])
        answer = "no" if about not in named else "yes" if len(named) == 1 else "maybe"
        told.ask(f"Is {asked} in the {about}?", answer, line)
    return told.story()


def coreference(draws: Draws) -> Story:
    """Task 11: a person moves, then "he" or "she" moves on."""
    told, at = Telling(), hidden_places(draws, PEOPLE, HOUSE)
    recent: list[str] = []
    latest: dict[str, tuple[int, int]] = {}
    for _ in range(QUESTIONS):
        person = draws.choice(PEOPLE)
        at[person] = draws.other(HOUSE, at[person])
        first = told.state(f"{person} {draws.choice(MOVE)} the {at[person]}.")
        at[person] = draws.other(HOUSE, at[person])
        then = f"{draws.choice(LATER)} {PRONOUNS[person]} {draws.choice(MOVE)} the {at[person]}."
        latest[person] = (first, told.state(then))
        recent += [person, person]
        asked = draws.choice(recent[-WINDOW:])
        told.ask(f"Where is {asked}?", at[asked], *latest[asked])
    return told.story()


def move_together(draws: Draws, at: dict[str, str]) -> tuple[tuple[str, str], str]:
    """Two persons move to a place where neither is; who, and the sentence."""
    while True:
        first = draws.choice(PEOPLE)
        second = draws.other(PEOPLE, first)
        place = draws.choice(HOUSE)
        if place not in (at[first], at[second]):
            at[first] = at[second] = place
            return (first, second), f"{first} and {second} {draws.choice(MOVE)} the {place}."


def conjunction(draws: Draws) -> Story:
    """Task 12: two persons move together. A statement about two counts as two among the last five."""
    told, at = Telling(), hidden_places(draws, PEOPLE, HOUSE)
    recent: list[str] = []
    latest: dict[str, int] = {}
    for _ in range(QUESTIONS):
        for _ in range(2):
            pair, text = move_together(draws, at)
            line = told.state(text)
            latest.update(dict.fromkeys(pair, line))
            recent += pair
        asked = draws.choice(recent[-WINDOW:])
        told.ask(f"Where is {asked}?", at[asked], latest[asked])
    return told.story()


def compound_coreference(draws: Draws) -> Story:
    """Task 13: two persons move, then "they" move on."""
    told, at = Telling(), hidden_places(draws, PEOPLE, HOUSE)
    recent: list[str] = []
    latest: dict[str, tuple[int, int]] = {}
    for _ in range(QUESTIONS):
        pair, text = move_together(draws, at)
        first = told.state(text)
        at[pair[0]] = at[pair[1]] = place = draws.other(HOUSE, at[pair[0]])
        second = told.state(f"{draws.choice(LATER)} they {draws.choice(MOVE)} the {place}.")
        latest.update(dict.fromkeys(pair, (first, second)))
        recent += [*pair, *pair]
        asked = draws.choice(recent[-WINDOW:])
        told.ask(f"Where is {asked}?", at[asked], *latest[asked])
    return told.story()
