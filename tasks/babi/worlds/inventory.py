"""What is asked of those who carry things: tasks 2, 3 and 5 to 8 (the world is in `carrying.py`)."""

from tasks.babi.draws import Draws
from tasks.babi.worlds.carrying import Action, Asked, Rules
from tasks.babi.worlds.telling import HOUSE

FRIENDS = ("Mary", "Fred", "Bill", "Jeff")  # of task 5, in the order in which they are given to
COUNTS = ("none", "one", "two", "three")


class TwoFacts(Rules):
    """Task 2. Asked is a thing that was dropped at a told place, or that was carried somewhere since it was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.brought: dict[str, Action | None] = {}  # by thing: the move that brought it where it is, if told

    def hear(self, action: Action) -> None:
        super().hear(action)
        if action.kind == "move":
            for thing, use in self.last_use.items():
                if use.kind == "get" and use.person == action.person:
                    self.brought[thing] = action
        elif action.kind == "get":
            self.brought[action.thing] = None
        else:
            self.brought[action.thing] = self.last_move.get(action.person)

    def allows(self, action: Action) -> bool:
        return action.kind != "move" and self.brought[action.thing] is not None

    def question(self, action: Action, draws: Draws) -> Asked:
        move = self.brought[action.thing]
        assert move is not None
        return f"Where is the {action.thing}?", move.thing, (self.last_use[action.thing].line, move.line)


class ThreeFacts(Rules):
    """Task 3. Asked is a thing that its last carrier moved at least twice: about one of these moves but the first."""

    there = 2

    def __init__(self) -> None:
        super().__init__()
        self.journey: dict[str, list[Action]] = {}  # by thing: the moves of its carrier since it was last taken

    def hear(self, action: Action) -> None:
        super().hear(action)
        if action.kind == "move":
            for thing, use in self.last_use.items():
                if use.kind == "get" and use.person == action.person:
                    self.journey[thing].append(action)
        elif action.kind == "get":
            self.journey[action.thing] = []

    def allows(self, action: Action) -> bool:
        return action.kind != "move" and len(self.journey[action.thing]) >= 2

    def question(self, action: Action, draws: Draws) -> Asked:
        moves = self.journey[action.thing]
        place = moves[1 + draws.below(len(moves) - 1)].thing
        last = max(i for i, move in enumerate(moves) if move.thing == place)
        before = moves[last - 1]
        supports = (self.last_use[action.thing].line, moves[last].line, before.line)
        return f"Where was the {action.thing} before the {place}?", before.thing, supports


class ThreeArguments(Rules):
    """Task 5. Asked is the last give of a thing.

    The released data asks "What did A give to B?" also where A has given B something else since (0.2 %), with the
    earlier thing as the answer; here another wording is taken.
    """

    people, gives = FRIENDS, True

    def __init__(self) -> None:
        super().__init__()
        self.last_give: dict[str, Action] = {}  # by thing
        self.last_between: dict[tuple[str, str], Action] = {}  # by giver and receiver

    def hear(self, action: Action) -> None:
        if action.kind == "give":
            self.last_give[action.thing] = self.last_between[action.person, action.to] = action

    def allows(self, action: Action) -> bool:
        return action.kind == "give"

    def question(self, action: Action, draws: Draws) -> Asked:
        give = self.last_give[action.thing]
        giver, thing, to = give.person, give.thing, give.to
        clear = self.last_between[giver, to] is give
        text, answer = (
            (f"Who gave the {thing} to {to}?", giver),
            (f"Who gave the {thing}?", giver),
            (f"Who received the {thing}?", to),
            (f"Who did {giver} give the {thing} to?", to),
            (f"What did {giver} give to {to}?", thing),
            (f"What did {giver} give to {to}?", thing),
        )[draws.below(6 if clear else 4)]
        return text, answer, (give.line,)


class YesNo(Rules):
    """Task 6. Asked is a person who moved, for the right place or another with equal chance."""

    def allows(self, action: Action) -> bool:
        return action.kind == "move"

    def question(self, action: Action, draws: Draws) -> Asked:
        move = self.last_move[action.person]
        right = draws.below(2)
        place = move.thing if right else draws.other(HOUSE, move.thing)
        return f"Is {action.person} in the {place}?", "yes" if right else "no", (move.line,)


class Counting(Rules):
    """Task 7. Asked is a person who took, dropped or gave, not one who received. Supports: all that changed hands."""

    gives = True

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[int]] = {}
        self.things: dict[str, list[str]] = {}  # in hand, by person

    def hear(self, action: Action) -> None:
        if action.kind == "move":
            return
        self.lines.setdefault(action.person, []).append(action.line)
        mine = self.things.setdefault(action.person, [])
        if action.kind == "get":
            mine.append(action.thing)
        else:
            mine.remove(action.thing)
        if action.kind == "give":
            self.lines.setdefault(action.to, []).append(action.line)
            self.things.setdefault(action.to, []).append(action.thing)

    def question(self, action: Action, draws: Draws) -> Asked:
        person = action.person
        count = COUNTS[len(self.things[person])]
        return f"How many objects is {person} carrying?", count, tuple(self.lines[person])


class Lists(Rules):
    """Task 8. The answer and the supports are ordered by when the person took each thing for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, dict[str, list[int]]] = {}  # by person and thing, in order of the first get
        self.holds: dict[str, set[str]] = {}

    def hear(self, action: Action) -> None:
        if action.kind != "move":
            self.lines.setdefault(action.person, {}).setdefault(action.thing, []).append(action.line)
            self.holds.setdefault(action.person, set()).symmetric_difference_update({action.thing})

    def question(self, action: Action, draws: Draws) -> Asked:
        person = action.person
        things = self.lines[person]
        answer = ",".join(thing for thing in things if thing in self.holds[person]) or "nothing"
        return f"What is {person} carrying?", answer, tuple(line for lines in things.values() for line in lines)
