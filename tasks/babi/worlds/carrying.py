"""Persons who carry things, the world of tasks 2, 3 and 5 to 8; what is asked is in `inventory.py`.

An action is drawn until it is possible: one of move, get, drop (and give) with equal chance; a move is by anybody to
any place but the present one; a get is by anybody, of a thing that lies free there; a drop of a thing in hand. A give
is of the first thing whose holder has company, to the first of them, in fixed orders: a habit of the released data.
Start places are hidden. After each pair of actions a question is asked about one of the last five, if any of them
allows it; five questions end the story.
"""

from typing import NamedTuple

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import DROP, GET, GIVE, HOUSE, MOVE, WINDOW, Telling

THINGS = ("apple", "football", "milk")  # in the order in which they are given
PEOPLE = ("John", "Mary", "Sandra", "Daniel")  # in the order in which they are given to
QUESTIONS = 5

Asked = tuple[str, str, tuple[int, ...]]  # text, answer, supporting lines


class Action(NamedTuple):
    """What happened: kind is move, get, drop or give; `thing` is the place of a move; `to` the receiver of a give."""

    kind: str
    person: str
    thing: str
    to: str
    line: int


class World:
    """Who and what is where. `there` is how many gets in ten end with "there"; drops are two in ten."""

    def __init__(self, draws: Draws, people: tuple[str, ...], gives: bool, there: int):
        self.draws, self.people, self.there = draws, people, there
        self.kinds = ("move", "get", "drop", "give") if gives else ("move", "get", "drop")
        self.at = {person: draws.choice(HOUSE) for person in people}
        self.lies: dict[str, str | None] = {thing: draws.choice(HOUSE) for thing in THINGS}
        self.held: dict[str, str | None] = dict.fromkeys(THINGS)
        self.told = Telling()

    def in_hand(self, person: str) -> list[str]:
        return [thing for thing in THINGS if self.held[thing] == person]

    def company(self, person: str) -> list[str]:
        return [other for other in self.people if other != person and self.at[other] == self.at[person]]

    def act(self) -> Action:
        """Draws until something is possible, does it and tells it."""
        while True:
            kind = self.draws.choice(self.kinds)
            action = getattr(self, kind)()
            if action is not None:
                person, thing, to, text = action
                return Action(kind, person, thing, to, self.told.state(text))

    def move(self) -> tuple[str, str, str, str] | None:
        draws = self.draws
        person, place = draws.choice(self.people), draws.choice(HOUSE)
        if place == self.at[person]:
            return None
        self.at[person] = place
        return person, place, "", f"{person} {draws.choice(MOVE)} the {place}."

    def get(self) -> tuple[str, str, str, str] | None:
        draws = self.draws
        person = draws.choice(self.people)
        here = [thing for thing in THINGS if self.lies[thing] == self.at[person]]
        if not here:
            return None
        thing = draws.choice(here)
        self.held[thing], self.lies[thing] = person, None
        end = " there" if draws.below(10) < self.there else ""
        return person, thing, "", f"{person} {draws.choice(GET)} the {thing}{end}."

    def drop(self) -> tuple[str, str, str, str] | None:
        draws = self.draws
        person = draws.choice(self.people)
        things = self.in_hand(person)
        if not things:
            return None
        thing = draws.choice(things)
        self.held[thing], self.lies[thing] = None, self.at[person]
        end = " there" if draws.below(10) < 2 else ""
        return person, thing, "", f"{person} {draws.choice(DROP)} the {thing}{end}."

    def give(self) -> tuple[str, str, str, str] | None:
        for thing, person in self.held.items():
            if person is not None and (company := self.company(person)):
                to = self.held[thing] = company[0]
                return person, thing, to, f"{person} {self.draws.choice(GIVE)} the {thing} to {to}."
        return None


class Rules:
    """What a listener knows and which questions she can be asked; one subclass per task."""

    people, gives, there = PEOPLE, False, 10

    def __init__(self) -> None:
        self.last_move: dict[str, Action] = {}  # by person
        self.last_use: dict[str, Action] = {}  # by thing: the last get, drop or give

    def hear(self, action: Action) -> None:
        if action.kind == "move":
            self.last_move[action.person] = action
        else:
            self.last_use[action.thing] = action

    def allows(self, action: Action) -> bool:
        """Whether a question can be asked about this action's person or thing as things stand now."""
        return action.kind != "move"

    def question(self, action: Action, draws: Draws) -> Asked:
        raise NotImplementedError

    @classmethod
    def tell(cls, draws: Draws) -> Story:
        """A story of this task."""
        rules, recent, asked = cls(), list[Action](), 0
        world = World(draws, rules.people, rules.gives, rules.there)
        while asked < QUESTIONS:
            for _ in range(2):
                recent.append(world.act())
                rules.hear(recent[-1])
            if fit := [action for action in recent[-WINDOW:] if rules.allows(action)]:
                text, answer, supports = rules.question(draws.choice(fit), draws)
                world.told.ask(text, answer, *supports)
                asked += 1
        return world.told.story()
