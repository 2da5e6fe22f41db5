"""Defects of leaving early when serving (spec I1 to I8): of engines with slots, of exit policies, of streams."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.base import Answer, Predicted
from ponder_ref.conformance.mutants.base import Mutant
from ponder_ref.conformance.mutants.slots import machine
from ponder_ref.halting import log_sigmoid


def _around(**changes: Any):
    """`predict` with some of its arguments changed, each by a function of all of them."""

    def predict(step, x, state, **options) -> Predicted:
        ponder_ref.predict(step, x, state, **options)
        return ponder_ref.predict(step, x, state, **{**options, **{k: v(options) for k, v in changes.items()}})

    return predict


def _whole_unroll(step, x, state, **options):
    """All N steps of the batch: what a trace with a fixed number of steps keeps, and the right result."""
    right = ponder_ref.predict(step, x, state, **options)
    every = {**options, "policy": "fixed", "trace": True}
    return right, ponder_ref.predict(step, x, state, **every).trace


def _last_answers(step, x, state, **options) -> Predicted:
    """The answer of step N beside the steps at which examples halted."""
    right, trace = _whole_unroll(step, x, state, **options)
    return right if options.get("policy", "sample") != "sample" else right._replace(y_hat=trace.y_hat[-1])


def _never_forced(step, x, state, **options) -> Predicted:
    """An example that no uniform halts gets the initial zeros."""
    right, _ = _whole_unroll(step, x, state, **options)
    late = (right.steps == options["max_steps"]) & (options.get("policy", "sample") == "sample")
    return right._replace(y_hat=np.where(late[:, None], 0, right.y_hat))


def _unconditional(step, x, state, **options) -> Predicted:
    """Bernoulli with pₙ instead of λₙ."""
    right, trace = _whole_unroll(step, x, state, **options)
    if options.get("policy", "sample") != "sample":
        return right
    p = np.exp(ponder_ref.log_halting(trace.halt_logits))
    ids = options.get("example_ids")
    ids = np.arange(p.shape[1]) if ids is None else ids
    steps = ponder_ref.draw_steps(p, options.get("seed", 0), ids, draw=options.get("draw", 0))
    return right._replace(steps=steps, y_hat=trace.y_hat[steps - 1, np.arange(len(steps))])


def _mean_quantile(step, x, state, **options) -> Predicted:
    """The batch leaves together, when its mean mass reaches q."""
    right, trace = _whole_unroll(step, x, state, **options)
    if options.get("policy") != "quantile":
        return right
    mass = -np.expm1(np.cumsum(log_sigmoid(-trace.halt_logits), axis=0)).mean(axis=1)
    step_of_all = int(np.append(np.flatnonzero(mass >= options.get("q", 0.5)), len(mass) - 1)[0])
    return right._replace(steps=np.full_like(right.steps, step_of_all + 1), y_hat=trace.y_hat[step_of_all])


def _without_remainder(step, x, state, **options) -> Predicted:
    """Σ pₙŷₙ without the mass that is left."""
    right, trace = _whole_unroll(step, x, state, **options)
    if options.get("policy") != "expected" or options.get("remainder", "last") != "last":
        return right
    z, n = trace.halt_logits, np.arange(1, options["max_steps"] + 1)[:, None]
    reached = np.concatenate([np.zeros_like(z[:1]), np.cumsum(log_sigmoid(-z), axis=0)[:-1]])
    p = np.where(n <= right.steps, np.exp(log_sigmoid(z) + reached), 0)
    return right._replace(y_hat=(p[..., None] * trace.y_hat).sum(axis=0))


def _saves_nothing(step, x, state, **options) -> Predicted:
    """Every example is computed for N steps; the answers are chosen afterwards."""
    right, trace = _whole_unroll(step, x, state, **options)
    return right._replace(rows=trace.halt_logits.size)


def _counts_little(step, x, state, **options) -> Predicted:
    right = ponder_ref.predict(step, x, state, **options)
    return right._replace(rows=len(right.steps))


def _one_step_more(step, x, state, **options) -> Predicted:
    """Each step is taken from a state one step ahead of the example's own."""
    ahead = step(state)[1] if x is None else step(x, state)[1]
    ponder_ref.predict(step, x, state, **options)
    return ponder_ref.predict(step, x, ahead, **options)


def _uncut_trace(step, x, state, **options) -> Predicted:
    """log p of the padded logits, as if all N steps had been taken."""
    right = ponder_ref.predict(step, x, state, **options)
    if right.trace is None:
        return right
    log_p = ponder_ref.log_halting(right.trace.halt_logits, remainder=options.get("remainder", "last"))
    return right._replace(log_p=log_p)


def _runs_on_in_the_trace(step, x, state, **options) -> Predicted:
    right, trace = _whole_unroll(step, x, state, **options)
    return right if right.trace is None else right._replace(trace=trace)


def _stream(change):
    """`stream` with something done to its answers or its arguments: change(right, model, iterable, options)."""

    def stream(model, iterable, **options):
        yield from change(ponder_ref.stream, model, iterable, options)

    return stream


def _lost_at_the_end(right, model, iterable, options):
    """What is in the slots when the iterable ends is lost."""
    answers = list(right(model, iterable, **options))
    yield from answers[: len(answers) - (len(answers) > options.get("slots", 64))]


def _answered_twice(right, model, iterable, options):
    for answer in right(model, iterable, **options):
        yield answer
        if answer.index == 3:
            yield answer


def _as_they_leave(right, model, iterable, options):
    """`ordered` has no effect: quick ones first."""
    answers = right(model, iterable, **options)
    while some := list(itertools.islice(answers, options.get("slots", 64))):
        yield from sorted(some, key=lambda answer: answer.steps)


def _takes_all(right, model, iterable, options):
    """The whole iterable is read before the first answer."""
    examples, failure = [], None
    try:
        examples.extend(iterable)
    except LookupError as error:
        failure = error
    yield from right(model, examples, **options)
    if failure:
        raise failure


def _raises_at_once(right, model, iterable, options):
    """The iterable's exception is passed on before the examples in the slots have been answered."""
    answers, slots = [], options.get("slots", 64)
    for answer in right(model, iterable, **options):
        answers.append(answer)
        if len(answers) == slots:
            yield answers.pop(0)
    yield from answers


def _swallowed(right, model, iterable, options):
    try:
        yield from right(model, iterable, **options)
    except LookupError:
        return


def _pause_is_the_end(right, model, iterable, options):
    yield from right(model, itertools.takewhile(lambda example: example is not None, iterable), **options)


def _first_id_ignored(right, model, iterable, options):
    yield from right(model, iterable, **{**options, "first_id": 0})


def _numbered_as_they_leave(right, model, iterable, options):
    """The index of an answer is its place among the answers."""
    for number, answer in enumerate(_as_they_leave(right, model, iterable, options)):
        yield Answer(number, answer.y_hat, answer.steps)


def _own_exit_ignored(right, model, iterable, options):
    """Sampled exits, or those of the defaults, whatever the model was trained for."""
    yield from right(
        SimpleNamespace(step=model.step, start=model.start, max_steps=model.max_steps), iterable, **options
    )


ENGINES = (
    ("in-the-order-of-leaving", "results are not put back in order", "I5"),
    ("state-not-gathered", "rows of the input are moved up, those of the state are not", "I5"),
    ("uniforms-by-slot", "random numbers belong to the slot", "I5"),
    ("uniforms-by-turn", "random numbers belong to the turn of the loop", "I5"),
    ("overwritten-by-the-next", "an answer is overwritten by what its slot computes next", "I5"),
    ("running-dropped-at-the-end", "what still runs when no example waits is dropped", "I5"),
    ("leaves-with-the-slowest", "examples leave when all in the batch have halted", "I5"),
    ("blended-by-a-mask", "answers are blended by multiplication: a NaN spreads", "I5"),
    ("uniform-of-the-step-before", "the uniform of step n − 1", "I1"),
    ("ties-halt", "halts if u ≤ λ", "I1"),
)
MUTANTS = (
    *(Mutant(name, defect, requirement, {"predict": machine(name)}) for name, defect, requirement in ENGINES),
    *(
        Mutant(name, defect, requirement, {"predict": predict})
        for name, defect, requirement, predict in (
            ("answers-of-the-last-step", "the prediction of step N", "I1", _last_answers),
            ("initial-answer-if-never-halted", "not halted at N", "I1", _never_forced),
            ("exit-by-p", "halts with probability pₙ, not λₙ", "I1", _unconditional),
            ("ids-ignored", "example ids have no effect", "I1", _around(example_ids=lambda o: None)),
            ("draw-ignored", "always draw 0", "I1", _around(draw=lambda o: 0)),
            ("half-the-seed", "the seed's low 32 bits", "I1", _around(seed=lambda o: o.get("seed", 0) % 2**32)),
            ("quantile-of-the-batch", "the batch leaves by its mean mass", "I2", _mean_quantile),
            ("q-ignored", "q is always 0.5", "I2", _around(q=lambda o: 0.5)),
            (
                "fixed-is-one-short",
                "N − 1 steps",
                "I3",
                _around(max_steps=lambda o: max(1, o["max_steps"] - (o.get("policy") == "fixed"))),
            ),
            ("expected-without-remainder", "the mass left is answered for by nobody", "I4", _without_remainder),
            ("exit-remainder-ignored", 'always "last"', "I4", _around(remainder=lambda o: "last")),
            ("exit-epsilon-ignored", "ε is always 0.05", "I4", _around(epsilon=lambda o: 0.05)),
            ("exit-min-steps-ignored", "min_steps is 1", "I4", _around(min_steps=lambda o: 1)),
            (
                "exit-threshold-not-rounded",
                "a mass left that equals ε is enough",
                "I4",
                _around(epsilon=lambda o: o.get("epsilon", 0.05) * (1 + 1e-9)),
            ),
            ("all-steps-of-all", "N steps are computed and one is chosen", "I6", _saves_nothing),
            ("rows-not-counted", "fewer rows are reported than were computed", "I6", _counts_little),
            ("a-step-ahead", "the state is one step ahead of the count", "I6", _one_step_more),
            ("trace-not-cut", "log p of steps that were not taken", "I7", _uncut_trace),
            ("trace-runs-on", "steps beyond the example's own", "I7", _runs_on_in_the_trace),
        )
    ),
    *(
        Mutant(name, defect, "I8", {"stream": _stream(change)})
        for name, defect, change in (
            ("lost-at-the-end", "an example in the slots is lost when the iterable ends", _lost_at_the_end),
            ("answered-twice", "an example is answered twice", _answered_twice),
            ("order-ignored", "answers in the order of leaving", _as_they_leave),
            ("takes-all-at-once", "no back-pressure", _takes_all),
            ("raises-at-once", "examples before the iterable's exception are lost", _raises_at_once),
            ("exception-swallowed", "the iterable's exception is taken for its end", _swallowed),
            ("pause-is-the-end", "None ends the stream", _pause_is_the_end),
            ("own-exit-ignored", "the model's own method and ε have no effect", _own_exit_ignored),
            ("first-id-ignored", "ids always count from 0", _first_id_ignored),
            ("numbered-as-they-leave", "answers carry another example's index", _numbered_as_they_leave),
        )
    ),
)
SLOT_MACHINE = Mutant("slot-machine", "rows that halt leave and others take their slots", "", {"predict": machine()})
