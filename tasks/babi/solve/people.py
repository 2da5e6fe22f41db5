"""Rules about persons, places and things in hand: tasks 1 to 3 and 5 to 14."""

import functools
from collections.abc import Sequence

Words = tuple[str, ...]
COUNTS = ("none", "one", "two", "three")
TIMES = (("yesterday",), ("this", "morning"), ("this", "afternoon"), ("this", "evening"))
PRONOUNS = {"he", "she", "they"}
GIVE = {"gave", "passed", "handed"}
DROP = {"dropped", "left", "discarded", "put"}
GET = {"took", "got", "grabbed", "picked"}


@functools.cache
def event(words: Words) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """(kind, persons, what): what is the place or places, or the thing and the receiver. Persons may be ("they",)."""
    if words[-1] == "there":
        words = words[:-1]
    if words[1] in GIVE:
        return "give", (words[0],), (words[3], words[5])
    if words[1] in GET:
        return "get", (words[0],), (words[-1],)
    if words[1] in DROP:
        return "drop", (words[0],), (words[-1],)
    pronoun = next((word for word in words if word in PRONOUNS), None)
    persons = (pronoun,) if pronoun else (words[0], words[2]) if words[1] == "and" else (words[0],)
    if "either" in words:
        return "maybe", persons, (words[5], words[8])
    negated = words[1] == "is" and words[2] in ("not", "no")
    return "left" if negated else "at", persons, (words[-1],)


def places(statements: Sequence[Words]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The latest news of each person: ("at", place), ("left", place) or ("maybe", places)."""
    known: dict[str, tuple[str, tuple[str, ...]]] = {}
    named: tuple[str, ...] = ()
    for words in statements:
        kind, persons, what = event(words)
        if kind in ("at", "left", "maybe"):
            if persons[0] not in PRONOUNS:
                named = persons
            known.update(dict.fromkeys(named, (kind, what)))
    return known


def where_is(statements: Sequence[Words], question: Words) -> str | None:
    """Tasks 1, 11, 12, 13: where is P."""
    kind, what = places(statements).get(question[-1], ("", ("",)))
    return what[0] if kind == "at" else None


def is_in(statements: Sequence[Words], question: Words) -> str | None:
    """Tasks 6, 9, 10: is P in the L. Who has left L is not in L; of another place nothing is known then."""
    person, place = question[1], question[-1]
    kind, what = places(statements).get(person, ("", ()))
    if kind == "at":
        return "yes" if place in what else "no"
    if kind == "maybe":
        return "maybe" if place in what else "no"
    return "no" if kind == "left" and place in what else None


def thing_places(statements: Sequence[Words], thing: str) -> list[str]:
    """The places where the thing is known to have been, in order; it moves with who holds it."""
    at: dict[str, str] = {}
    holder, history = None, []
    for words in statements:
        kind, (person, *_), what = event(words)
        if kind == "at":
            at[person] = what[0]
        elif what[0] == thing:
            holder = {"get": person, "drop": None, "give": what[-1]}[kind]
        concerned = what[0] == thing or (kind == "at" and person == holder)
        if concerned and person in at and history[-1:] != [at[person]]:
            history.append(at[person])
    return history


def where_is_thing(statements: Sequence[Words], question: Words) -> str | None:
    """Task 2: where is the O."""
    history = thing_places(statements, question[-1])
    return history[-1] if history else None


def before(history: Sequence[str], place: str) -> str | None:
    """What stands before the last occurrence of the place that has something before it."""
    found = [history[i - 1] for i in range(1, len(history)) if history[i] == place]
    return found[-1] if found else None


def where_was_thing(statements: Sequence[Words], question: Words) -> str | None:
    """Task 3: where was the O before the L."""
    return before(thing_places(statements, question[3]), question[-1])


def who_gave_what(statements: Sequence[Words], question: Words) -> str | None:
    """Task 5: by the latest give that fits what the question names."""
    giver = thing = to = None
    received = question[1] == "received"
    if question[0] == "what":  # what did A give to B
        giver, to = question[2], question[5]
    elif question[1] == "did":  # who did A give the O to
        giver, thing = question[2], question[5]
    else:  # who gave the O (to B), who received the O
        thing = question[3]
        to = question[5] if len(question) > 4 else None
    for words in reversed(statements):
        kind, (by, *_), (what, *whom) = event(words)
        if kind == "give" and giver in (None, by) and thing in (None, what) and to in (None, whom[0]):
            return what if thing is None else whom[0] if giver or received else by
    return None


def things_of(statements: Sequence[Words], person: str) -> list[str]:
    """What the person holds, in the order in which each thing came to the person for the first time."""
    first: dict[str, bool] = {}
    for words in statements:
        kind, (actor, *_), what = event(words)
        if kind in ("get", "drop", "give"):
            if kind == "give" and what[1] == person:
                first[what[0]] = True
            elif actor == person:
                first[what[0]] = kind == "get"
    return [thing for thing, held in first.items() if held]


def how_many(statements: Sequence[Words], question: Words) -> str | None:
    """Task 7: how many objects is P carrying."""
    return COUNTS[len(things_of(statements, question[4]))]


def carrying(statements: Sequence[Words], question: Words) -> str | None:
    """Task 8: what is P carrying."""
    return ",".join(things_of(statements, question[2])) or "nothing"


def where_was(statements: Sequence[Words], question: Words) -> str | None:
    """Task 14: where was P before the L, of visits sorted by time."""
    visits = []
    for words in statements:
        for number, time in enumerate(TIMES):
            size = len(time)
            if words[:size] == time:
                person, place = words[size], words[-1]
            elif words[-size:] == time:
                person, place = words[0], words[-size - 1]
            else:
                continue
            if person == question[2]:
                visits.append((number, place))
    return before([place for _, place in sorted(visits)], question[-1])
