"""Animals, what they fear and what colour they have: tasks 15 and 16."""

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds.telling import Telling

PLURALS = {"mouse": "mice", "sheep": "sheep", "wolf": "wolves", "cat": "cats"}
SPECIES = tuple(PLURALS)
NAMED = ("Gertrude", "Winona", "Jessica", "Emily")

ANIMALS = ("swan", "lion", "frog", "rhino")
COLOURS = ("gray", "white", "yellow", "green")
COLOURED = ("Lily", "Bernhard", "Greg", "Julius", "Brian")
CLASS_SIZES = (2, 4, 5)  # of the asked person's animal


def deduction(draws: Draws) -> Story:
    """Task 15: what somebody is afraid of. Somebody's species is one whose fear has been told before."""
    told = Telling()
    fears: dict[str, tuple[str, int]] = {}
    kinds: dict[str, tuple[str, int]] = {}
    while len(fears) < len(SPECIES) or len(kinds) < len(NAMED):
        species = draws.choice(SPECIES)
        if draws.below(2):
            if species not in fears:
                feared = draws.other(SPECIES, species)
                text = f"{PLURALS[species].capitalize()} are afraid of {PLURALS[feared]}."
                fears[species] = (feared, told.state(text))
        else:
            person = draws.choice(NAMED)
            if person not in kinds and species in fears:
                kinds[person] = (species, told.state(f"{person} is a {species}."))
    for _ in range(4):
        person = draws.choice(NAMED)
        species, line = kinds[person]
        feared, reason = fears[species]
        told.ask(f"What is {person.lower()} afraid of?", feared, line, reason)
    return told.story()


def induction(draws: Draws) -> Story:
    """Task 16: which colour somebody has, by the colour of another of the same animal.

    Five animals and four colours are told in any order, somebody's colour after the animal; the one left is asked. The
    colour of an animal is drawn anew whenever another one of it is introduced, so that one animal may show several:
    the answer is the colour of the one who was introduced last. Stories in which the asked one's animal has one or
    three members do not occur in the released data, nor here.
    """
    while True:
        told = Telling()
        kinds: dict[str, tuple[str, int]] = {}
        colours: dict[str, tuple[str, int]] = {}
        now: dict[str, str] = {}  # colour by animal
        while len(kinds) < len(COLOURED) or len(colours) < len(COLOURED) - 1:
            person = draws.choice(COLOURED)
            if draws.below(2):
                if person not in kinds:
                    animal = draws.choice(ANIMALS)
                    now[animal] = draws.choice(COLOURS)
                    kinds[person] = (animal, told.state(f"{person} is a {animal}."))
            elif person in kinds and person not in colours and len(colours) < len(COLOURED) - 1:
                colour = now[kinds[person][0]]
                colours[person] = (colour, told.state(f"{person} is {colour}."))
        (asked,) = kinds.keys() - colours.keys()
        animal, line = kinds[asked]
        others = [person for person in kinds if person != asked and kinds[person][0] == animal]
        if len(others) + 1 in CLASS_SIZES:
            witness = others[-1]
            colour, seen = colours[witness]
            told.ask(f"What color is {asked}?", colour, line, kinds[witness][1], seen)
            return told.story()
