"""Persons who change places: tasks 1 and 9 to 13.

Statements come in pairs, a question follows each pair, five in a story. Everybody has a hidden place at the start and
always moves to another one. A question draws one of the last five statements and asks about its person as things
stand now, so that the support is that person's latest statement.
"""

from collections.abc import Sequence
from typing import Any

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import HOUSE, MOVE, TOWN, WINDOW, Telling

PEOPLE = ("Daniel", "John", "Mary", "Sandra")
NEIGHBOURS = ("Bill", "Fred", "Julie", "Mary")
PRONOUNS = {"Daniel": "he", "John": "he", "Mary": "she", "Sandra": "she"}
LATER = ("Then", "Afterwards", "After that", "Following that")
QUESTIONS = 5


class Moving:
    """Who is where, what is told of it and what is asked: as it is, task 1; the others are subclasses."""

    people, places = PEOPLE, HOUSE
    news_per_question = 2

    def __init__(self, draws: Draws):
        self.draws, self.told = draws, Telling()
        self.at = {person: draws.choice(self.places) for person in self.people}

    @classmethod
    def tell(cls, draws: Draws) -> Story:
        """A story of this task."""
        world, recent = cls(draws), list[str]()
        latest: dict[str, Any] = {}
        for _ in range(QUESTIONS):
            for _ in range(cls.news_per_question):
                persons, known = world.news()
                latest.update(dict.fromkeys(persons, known))
                recent += persons
            asked = draws.choice(recent[-WINDOW:])
            world.told.ask(*world.question(asked, latest[asked]))
        return world.told.story()

    def news(self) -> tuple[Sequence[str], Any]:
        """Tells what happens next; of whom, once for each statement, and what `question` has to know of it."""
        person = self.draws.choice(self.people)
        return [person], (self.told.state(self.move(person)),)

    def move(self, person: str) -> str:
        """Somebody moves to another place; the sentence."""
        self.at[person] = self.draws.other(self.places, self.at[person])
        return f"{person} {self.draws.choice(MOVE)} the {self.at[person]}."

    def question(self, person: str, known: Any) -> tuple[Any, ...]:
        """Text, answer and supporting lines; here `known` are the lines."""
        return f"Where is {person}?", self.at[person], *known


class Negation(Moving):
    """Task 9: a move is told as such (1/2), as the new place (1/4) or as a place that the person has left (1/4).

    Who has left a place is asked for that place; anybody else for the right place or another, with equal chance.
    """

    def news(self) -> tuple[Sequence[str], Any]:
        person, kind = self.draws.choice(PEOPLE), self.draws.below(8)
        if kind < 4:
            text, place = self.move(person), self.at[person]
        else:
            before, place = self.at[person], self.draws.other(HOUSE, self.at[person])
            self.at[person] = place
            text = f"{person} is in the {place}."
            if kind >= 6:
                text, place = f"{person} is {'not' if kind == 6 else 'no longer'} in the {before}.", before
        return [person], (self.told.state(text), place, kind >= 6)

    def question(self, person: str, known: Any) -> tuple[Any, ...]:
        line, place, left = known
        right = bool(self.draws.below(2))
        about = place if left or right else self.draws.other(HOUSE, place)
        return f"Is {person} in the {about}?", "yes" if right and not left else "no", line


class Indefinite(Moving):
    """Task 10: a quarter of the moves is told as two places, the new one and any one of all six, in either order."""

    people, places = NEIGHBOURS, TOWN

    def news(self) -> tuple[Sequence[str], Any]:
        draws = self.draws
        person, kind = draws.choice(NEIGHBOURS), draws.below(4)
        if kind < 2:
            text, named = self.move(person), (self.at[person],)
        else:
            self.at[person] = place = draws.other(TOWN, self.at[person])
            text, named = f"{person} is in the {place}.", (place,)
            if kind == 3:
                named = (place, draws.choice(TOWN)) if draws.below(2) else (draws.choice(TOWN), place)
                text = f"{person} is either in the {named[0]} or the {named[1]}."
        return [person], (self.told.state(text), named)

    def question(self, person: str, known: Any) -> tuple[Any, ...]:
        line, named = known
        about = self.at[person] if self.draws.below(2) else self.draws.other(TOWN, self.at[person])
        answer = "no" if about not in named else "yes" if len(named) == 1 else "maybe"
        return f"Is {person} in the {about}?", answer, line


class Coreference(Moving):
    """Task 11: a person moves, then "he" or "she" moves on."""

    news_per_question = 1

    def news(self) -> tuple[Sequence[str], Any]:
        draws, person = self.draws, self.draws.choice(PEOPLE)
        first = self.told.state(self.move(person))
        self.at[person] = place = draws.other(HOUSE, self.at[person])
        then = f"{draws.choice(LATER)} {PRONOUNS[person]} {draws.choice(MOVE)} the {place}."
        return [person, person], (first, self.told.state(then))


class Conjunction(Moving):
    """Task 12: two persons move together. A statement about two counts as two among the last five."""

    def news(self) -> tuple[Sequence[str], Any]:
        pair = self.move_together()
        return pair, (len(self.told.lines),)

    def move_together(self) -> list[str]:
        """Two persons move to a place where neither is, and it is told; who."""
        draws, at = self.draws, self.at
        while True:
            first = draws.choice(PEOPLE)
            second = draws.other(PEOPLE, first)
            place = draws.choice(HOUSE)
            if place not in (at[first], at[second]):
                at[first] = at[second] = place
                self.told.state(f"{first} and {second} {draws.choice(MOVE)} the {place}.")
                return [first, second]


class CompoundCoreference(Conjunction):
    """Task 13: two persons move, then "they" move on."""

    news_per_question = 1

    def news(self) -> tuple[Sequence[str], Any]:
        draws, pair = self.draws, self.move_together()
        place = draws.other(HOUSE, self.at[pair[0]])
        self.at.update(dict.fromkeys(pair, place))
        then = self.told.state(f"{draws.choice(LATER)} they {draws.choice(MOVE)} the {place}.")
        return pair * 2, (then - 1, then)
