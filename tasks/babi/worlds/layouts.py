"""Rooms and shapes in the plane: tasks 4, 17 and 19.

Two neighbours are told as "The A is north of the B." A fact draws a room and one of its neighbours until it is new;
in tasks 4 and 19 the room is the subject, in task 17 the neighbour is.
"""

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import HOUSE, Telling

Step = tuple[int, int]
STEPS: dict[str, Step] = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
DIRECTIONS = {step: word for word, step in STEPS.items()}
RELATIONS: dict[str, Step] = {"above": (0, 1), "below": (0, -1), "to the right of": (1, 0), "to the left of": (-1, 0)}
PLACED = {step: word for word, step in RELATIONS.items()}
SHAPES = ("triangle", "pink rectangle", "blue square", "red square", "yellow square", "red sphere")

Sides = dict[str, dict[Step, str]]  # neighbour by side


def back(step: Step) -> Step:
    return -step[0], -step[1]


def join(sides: Sides, at: str, step: Step, name: str) -> None:
    sides[at][step] = name
    sides.setdefault(name, {})[back(step)] = at


def facts(draws: Draws, sides: Sides) -> list[tuple[str, str, Step]]:
    """All neighbours once: (drawn, neighbour, step from the drawn one to the neighbour), in the order of the draws."""
    names, seen, result = list(sides), set(), []
    count = sum(map(len, sides.values())) // 2
    while len(result) < count:
        name = draws.choice(names)
        step, neighbour = draws.choice(list(sides[name].items()))
        if frozenset((name, neighbour)) not in seen:
            seen.add(frozenset((name, neighbour)))
            result.append((name, neighbour, step))
    return result


def two_arguments(draws: Draws) -> Story:
    """Task 4: three rooms in a row. Asked is one of the facts for its subject, as told or turned round."""
    told = Telling()
    first, middle, last = draws.shuffled(HOUSE)[:3]
    step = draws.choice(list(STEPS.values()))
    sides: Sides = {middle: {}}
    join(sides, middle, step, first)
    join(sides, middle, back(step), last)
    known = []
    for room, neighbour, away in facts(draws, sides):
        word, turned = DIRECTIONS[back(away)], DIRECTIONS[away]
        known.append((room, word, turned, neighbour, told.state(f"The {room} is {word} of the {neighbour}.")))
    room, word, turned, neighbour, line = draws.choice(known)
    text = f"What is {word} of the {neighbour}?" if draws.below(2) else f"What is the {neighbour} {turned} of?"
    told.ask(text, room, line)
    return told.story()


def positions(draws: Draws) -> Story:
    """Task 17: two shapes beside a third. Asked are the two, eight times, as often with the answer yes as with no."""
    told = Telling()
    first, middle, last = draws.shuffled(SHAPES)[:3]
    here = draws.choice(list(RELATIONS.values()))
    there = draws.other(list(RELATIONS.values()), here)
    sides: Sides = {middle: {}}
    join(sides, middle, here, first)
    join(sides, middle, there, last)
    line_of = {}
    for shape, neighbour, step in facts(draws, sides):
        line = told.state(f"The {neighbour} is {PLACED[step]} the {shape}.")
        line_of[neighbour if shape == middle else shape] = line
    place = {first: here, last: there}
    questions: dict[str, list[tuple[str, str, str]]] = {"yes": [], "no": []}
    for subject, other in ((first, last), (last, first)):
        for word, (x, y) in RELATIONS.items():
            ahead = (place[subject][0] - place[other][0]) * x + (place[subject][1] - place[other][1]) * y
            questions["yes" if ahead > 0 else "no"].append((subject, word, other))
    for _ in range(8):
        answer = "yes" if draws.below(2) else "no"
        subject, word, other = draws.choice(questions[answer])
        told.ask(f"Is the {subject} {word} the {other}?", answer, line_of[subject], line_of[other])
    return told.story()


def path_finding(draws: Draws) -> Story:
    """Task 19: a path of two steps over three rooms; the other three rooms stand at free sides of these."""
    told = Telling()
    rooms = draws.shuffled(HOUSE)
    start, middle, end = rooms[:3]
    first = draws.choice(list(STEPS.values()))
    second = draws.other(list(STEPS.values()), back(first))
    sides: Sides = {start: {}}
    join(sides, start, first, middle)
    join(sides, middle, second, end)
    free = [(room, step) for room in (start, middle, end) for step in DIRECTIONS if step not in sides[room]]
    for name, (room, step) in zip(rooms[3:], draws.shuffled(free), strict=False):
        join(sides, room, step, name)
    line_of = {}
    for room, neighbour, step in facts(draws, sides):
        line = told.state(f"The {room} is {DIRECTIONS[back(step)]} of the {neighbour}.")
        line_of[frozenset((room, neighbour))] = line
    supports = (line_of[frozenset((start, middle))], line_of[frozenset((middle, end))])
    answer = f"{DIRECTIONS[first][0]},{DIRECTIONS[second][0]}"
    told.ask(f"How do you go from the {start} to the {end}?", answer, *supports)
    return told.story()
