"""The worlds behind the twenty tasks: one function per task makes a story from `Draws`.

The rules are those of the released data (v1.2, English, 10k), found by measuring it: who acts, what is told and what
is asked. Where the released program has a habit that no one would guess (an order of receivers, a fact that is passed
over), it is followed, and named in the docstring.
"""

from collections.abc import Callable

from tasks.babi.draws import Draws
from tasks.babi.stories import Story
from tasks.babi.worlds import inventory, kinds, layouts, motives, moving, sizes, times

MAKE: dict[int, Callable[[Draws], Story]] = {
    1: moving.Moving.tell,
    2: inventory.TwoFacts.tell,
    3: inventory.ThreeFacts.tell,
    4: layouts.two_arguments,
    5: inventory.ThreeArguments.tell,
    6: inventory.YesNo.tell,
    7: inventory.Counting.tell,
    8: inventory.Lists.tell,
    9: moving.Negation.tell,
    10: moving.Indefinite.tell,
    11: moving.Coreference.tell,
    12: moving.Conjunction.tell,
    13: moving.CompoundCoreference.tell,
    14: times.time_reasoning,
    15: kinds.deduction,
    16: kinds.induction,
    17: layouts.positions,
    18: sizes.size_reasoning,
    19: layouts.path_finding,
    20: motives.motivations,
}
