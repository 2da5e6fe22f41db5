"""Rules about relations: tasks 4 and 15 to 20."""

from collections.abc import Sequence

Words = tuple[str, ...]
STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
SIDES = {"above": (0, 1), "below": (0, -1), "right": (1, 0), "left": (-1, 0)}
SINGULAR = {"mice": "mouse", "sheep": "sheep", "wolves": "wolf", "cats": "cat"}
WANTS = {
    "hungry": ("kitchen", "apple"),
    "thirsty": ("kitchen", "milk"),
    "bored": ("garden", "football"),
    "tired": ("bedroom", "pajamas"),
}


def turned(word: str) -> str:
    x, y = STEPS[word]
    return next(other for other, step in STEPS.items() if step == (-x, -y))


def room_facts(statements: Sequence[Words]) -> list[tuple[str, str, str]]:
    """(A, direction, B) for "the A is DIR of the B", each also the other way round."""
    facts = [(words[1], words[3], words[6]) for words in statements]
    return facts + [(b, turned(word), a) for a, word, b in facts]


def neighbour(statements: Sequence[Words], question: Words) -> str | None:
    """Task 4: what is DIR of the A; what is the A DIR of."""
    if question[2] == "the":
        word, room = turned(question[4]), question[3]
    else:
        word, room = question[2], question[5]
    return next((a for a, way, b in room_facts(statements) if (way, b) == (word, room)), None)


def path(statements: Sequence[Words], question: Words) -> str | None:
    """Task 19: how do you go from the A to the B, in two steps."""
    facts = room_facts(statements)
    start, end = question[6], question[9]
    for middle, first, room in facts:
        if room == start:
            for goal, second, via in facts:
                if via == middle and goal == end:
                    return f"{first[0]},{second[0]}"
    return None


def afraid_of(statements: Sequence[Words], question: Words) -> str | None:
    """Task 15: what is P afraid of."""
    kind = next((words[3] for words in statements if words[:3] == (question[2], "is", "a")), None)
    fears = {SINGULAR[words[0]]: SINGULAR[words[4]] for words in statements if words[1] == "are"}
    return fears.get(kind or "")


def colour_of(statements: Sequence[Words], question: Words) -> str | None:
    """Task 16: what color is P, by the colour of the one of the same animal who was introduced last."""
    person = question[3]
    kinds = {words[0]: words[3] for words in statements if words[2] == "a"}
    colours = {words[0]: words[2] for words in statements if words[2] != "a"}
    same = [other for other in kinds if other != person and kinds[other] == kinds.get(person)]
    return colours.get(same[-1]) if same else None


def split_relation(words: Words) -> tuple[str, tuple[int, int], str]:
    """(A, step, B) of "the A is above the B" or "is the A to the left of the B"."""
    words = tuple(word for word in words if word not in ("the", "is", "to", "of"))
    where = next(i for i, word in enumerate(words) if word in SIDES)
    return " ".join(words[:where]), SIDES[words[where]], " ".join(words[where + 1 :])


def is_placed(statements: Sequence[Words], question: Words) -> str | None:
    """Task 17: is the A REL the B; each fact is one unit step."""
    facts = [split_relation(words) for words in statements]
    first, (x, y), second = split_relation(question)
    at = {first: (0, 0)}
    for _ in facts:
        for a, (dx, dy), b in facts:
            if b in at:
                at.setdefault(a, (at[b][0] + dx, at[b][1] + dy))
            elif a in at:
                at.setdefault(b, (at[a][0] - dx, at[a][1] - dy))
    if second not in at:
        return None
    return "yes" if -at[second][0] * x - at[second][1] * y > 0 else "no"


def around(words: Words, phrase: str) -> tuple[str, str]:
    """The things before and after a phrase, without "the" and what stands before it."""
    left, right = " ".join(words).split(f" {phrase} the ", 1)
    return left.split("the ", 1)[1], right


def is_bigger(statements: Sequence[Words], question: Words) -> str | None:
    """Task 18: is the A bigger than the B; does the B fit in the A."""
    bigger: dict[str, set[str]] = {}
    for words in statements:
        if "fits" in words:
            small, big = around(words, "fits inside")
        else:
            big, small = around(words, "is bigger than")
        bigger.setdefault(big, set()).add(small)
    if question[0] == "does":
        small, big = around(question, "fit in")
    else:
        big, small = around(question, "bigger than")
    return "yes" if reaches(bigger, big, small) else "no" if reaches(bigger, small, big) else None


def reaches(bigger: dict[str, set[str]], start: str, end: str) -> bool:
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += bigger.get(name, ())
    return end in seen - {start}


def motive(statements: Sequence[Words], question: Words) -> str | None:
    """Task 20: where will P go; why did P go to the L; why did P get the O."""
    person = question[2]
    state = next((words[2] for words in statements if words[0] == person and words[1] == "is"), None)
    if state is None:
        return None
    return WANTS[state][0] if question[0] == "where" else state
