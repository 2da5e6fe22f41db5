"""Why people go somewhere and get something: task 20."""

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import GET, MOVE, Telling

PEOPLE = ("Jason", "Antoine", "Sumit", "Yann")
WANTS = {
    "hungry": ("kitchen", "apple"),
    "thirsty": ("kitchen", "milk"),
    "bored": ("garden", "football"),
    "tired": ("bedroom", "pajamas"),
}
STATES = tuple(WANTS)


def motivations(draws: Draws) -> Story:
    """Somebody who can do the next thing does it, and is asked about it: be in a state, go, take.

    States are drawn independently. There is one of each object: who comes too late takes none. The story ends when
    nobody can do anything more.
    """
    told = Telling()
    state: dict[str, str] = {person: draws.choice(STATES) for person in PEOPLE}
    done: dict[str, int] = dict.fromkeys(PEOPLE, 0)
    told_at: dict[str, int] = {}
    taken: set[str] = set()
    while able := [p for p in PEOPLE if done[p] < 2 or (done[p] == 2 and state[p] not in taken)]:
        person = draws.choice(able)
        place, thing = WANTS[state[person]]
        name = person.lower()
        if done[person] == 0:
            told_at[person] = told.state(f"{person} is {state[person]}.")
            told.ask(f"Where will {name} go?", place, told_at[person])
        elif done[person] == 1:
            told.state(f"{person} {draws.choice(MOVE)} the {place}.")
            told.ask(f"Why did {name} go to the {place}?", state[person], told_at[person])
        else:
            told.state(f"{person} {draws.choice(GET)} the {thing} there.")
            taken.add(state[person])
            told.ask(f"Why did {name} get the {thing}?", state[person], told_at[person])
        done[person] += 1
    return told.story()
