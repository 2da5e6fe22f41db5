"""Defects of unrolling, of the baselines around a step network, and of their losses (spec M1 to M8)."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref import pondering as right
from ponder_ref.act import act_output
from ponder_ref.base import Pondered, PonderLoss
from ponder_ref.conformance.mutants.base import Mutant, detach
from ponder_ref.trees import map_tree


def _around(**changes: Any):
    """`ponder` with some of its arguments changed."""

    def ponder(step, x, state, **options):
        return ponder_ref.ponder(step, x, state, **{**options, **{k: v(options) for k, v in changes.items()}})

    return ponder


def _blind_first_step(step, x, state, **options) -> Pondered:
    """Step 1 computed before the input was used."""
    calls = []

    def blind(x, h):
        calls.append(1)
        return step(map_tree(lambda part: part * (len(calls) > 1), x), h)

    return ponder_ref.ponder(step if x is None else blind, x, state, **options)


def _one_call_too_many(step, x, state, **options) -> Pondered:
    out = ponder_ref.ponder(step, x, state, **options)
    after = step(out.state) if x is None else step(x, out.state)
    return out._replace(state=after if options.get("readout") else after[1])


def _state_not_passed_on(step, x, state, **options) -> Pondered:
    """Every step starts from the initial state."""

    def forgetful(*args):
        result = step(
            *args[:-1], {**args[-1], "h": state["h"]} if isinstance(args[-1], dict) and "h" in args[-1] else args[-1]
        )
        return result

    return ponder_ref.ponder(forgetful, x, state, **options)


def _grown_state_dropped(step, x, state, **options) -> Pondered:
    """Of a state that begins as nothing, nothing is carried on."""
    if state is not None and state != {}:
        return ponder_ref.ponder(step, x, state, **options)

    def forgetful(*args):
        y_hat, _, z = step(*args[:-1], state)
        return y_hat, state, z

    return ponder_ref.ponder(forgetful, x, state, **options)


def _detached_states(step, x, state, **options) -> Pondered:
    """No gradient from step to step."""

    def cut(*args):
        return step(*args[:-1], map_tree(detach, args[-1]))

    return ponder_ref.ponder(cut, x, state, **options)


def _batch_length(step, x, state, **options) -> Pondered:
    """With ε every example is cut at the batch's largest N."""
    out = ponder_ref.ponder(step, x, state, **options)
    if options.get("epsilon") is None:
        return out
    lengths = np.full_like(out.lengths, out.lengths.max())
    log_p = ponder_ref.log_halting(out.halt_logits, remainder=options.get("remainder", "last"), lengths=lengths)
    return out._replace(lengths=lengths, log_p=log_p)


def _never_leaves(step, x, state, **options) -> Pondered:
    """With ε all N steps are run."""
    out = ponder_ref.ponder(step, x, state, **options)
    if options.get("epsilon") is None or options.get("readout") is not None:
        return out
    every = ponder_ref.ponder(step, x, state, **{**options, "epsilon": None})
    state = {**out.state, "calls": every.state["calls"]} if "calls" in out.state else out.state
    return out._replace(state=state)


def _lengths_one_short(step, x, state, **options) -> Pondered:
    out = ponder_ref.ponder(step, x, state, **options)
    if options.get("epsilon") is None:
        return out
    lengths = np.maximum(out.lengths - 1, options.get("min_steps", 1))
    log_p = ponder_ref.log_halting(out.halt_logits, remainder=options.get("remainder", "last"), lengths=lengths)
    return out._replace(lengths=lengths, log_p=log_p)


def _states_run_on(step, x, state, **options) -> Pondered:
    """With ε an example that has halted goes on while its batch mates ponder."""
    out = ponder_ref.ponder(step, x, state, **options)
    if options.get("epsilon") is None or options.get("readout") is not None:
        return out
    steps = len(out.halt_logits)
    return out._replace(state=ponder_ref.ponder(step, x, state, max_steps=steps, method="repeat").state)


def _mean_answer(step, x, state, **options) -> Pondered:
    """ "repeat" averages over its steps."""
    out = ponder_ref.ponder(step, x, state, **options)
    if options.get("method") != "repeat":
        return out
    return out._replace(log_p=np.full(out.log_p.shape, -np.log(len(out.log_p))))


def _act_without_remainder(step, x, state, **options) -> Pondered:
    out = ponder_ref.ponder(step, x, state, **options)
    if out.act is None:
        return out
    n = np.arange(1, len(out.halt_logits) + 1)[:, None]
    lam = 1 / (1 + np.exp(-out.halt_logits))
    return out._replace(act=out.act._replace(weights=np.where(n <= out.act.steps, lam, 0)))


def _detached_start(step, x, state, **options) -> Pondered:
    """No gradient into h₀: an encoder is never trained."""
    return ponder_ref.ponder(step, x, map_tree(detach, state), **options)


def _detached_input(step, x, state, **options) -> Pondered:
    """No gradient into the input: a projection is never trained."""
    return ponder_ref.ponder(step, map_tree(detach, x), state, **options)


def _a_step_too_far(step, x, state, **options) -> Pondered:
    """A halted example's state is put back after the step, which has then run once more: its slope may be NaN."""
    out = ponder_ref.ponder(step, x, state, **options)
    if options.get("epsilon") is None:
        return out
    with np.errstate(all="ignore"):
        further = step(out.state) if x is None else step(x, out.state)
    spoilt = np.where(np.isfinite(further[0] if isinstance(further, tuple) else further), 0, 1j * np.nan)
    return out._replace(y_hat=out.y_hat + spoilt if np.iscomplexobj(out.y_hat) and spoilt.any() else out.y_hat)


def _readout_of_nothing(step, x, state, **options) -> Pondered:
    """With a readout the predictions are zeros."""
    out = ponder_ref.ponder(step, x, state, **options)
    return out if options.get("readout") is None else out._replace(y_hat=out.y_hat * 0)


def _first_prior(out, options):
    prior = options.get("log_prior")
    return out, {**options, "log_prior": prior if prior is None or prior.ndim == 1 else prior[:, 0]}


def _masks_ignored(out, options):
    weights = options.get("weights")
    return out, {**options, "weights": None if weights is not None and weights.dtype == bool else weights}


def _uniform_instead(out, options):
    if options.get("log_prior") is None and out.log_p is not None:
        options = {**options, "log_prior": np.full(len(out.log_p), -np.log(len(out.log_p)))}
    return out, options


def _multiplied(out, targets, criterion, **options) -> PonderLoss:
    """Losses beyond Nᵢ are multiplied by 0, not left out."""
    if out.act is not None:
        return ponder_ref.training_loss(out, targets, criterion, **options)
    losses = np.stack([criterion(y, targets) for y in out.y_hat])
    parts = ponder_ref.training_loss(out, targets, criterion, **options)
    if losses.ndim > out.log_p.ndim:
        return parts
    return parts._replace(example_rec=(np.exp(out.log_p) * losses).sum(axis=0))


def _steps_in_one_batch(out, targets, criterion, **options) -> PonderLoss:
    """Steps and examples as one batch for the criterion."""
    if out.act is not None or out.log_p.ndim != 2:
        return ponder_ref.training_loss(out, targets, criterion, **options)
    steps = len(out.y_hat)
    flat, tiled = out.y_hat.reshape(-1, *out.y_hat.shape[2:]), np.concatenate([targets] * steps)
    values = criterion(flat, tiled).reshape(steps, -1, *criterion(flat, tiled).shape[1:])
    return ponder_ref.training_loss(out._replace(y_hat=values), targets, lambda y, t: y, **options)


def _seen_by_the_criterion(predictions: bool, targets: bool):
    """Rows of weight 0 reach the criterion: their predictions, their targets, or both; their losses are left out."""

    def training_loss(out, given, criterion, **options) -> PonderLoss:
        weights = options.get("weights")
        same = out if predictions else out._replace(y_hat=right.harmless(out.y_hat, weights, lead=1))
        seen = given if targets else right.harmless(given, weights)

        def seeing(y_hat, _):
            at = next(steps)
            return criterion(same.y_hat[at] if out.act is None else act_output(out.act.weights, same.y_hat), seen)

        steps = iter(range(len(out.y_hat)))
        return ponder_ref.training_loss(out, given, seeing, **options)

    return training_loss


def _stretched(y_hat, targets):
    difference = right.as_float(y_hat) - right.as_float(targets)
    return difference * difference


def _loss(change):
    """`training_loss` with something done to its arguments."""

    def training_loss(out, targets, criterion, **options) -> PonderLoss:
        out, options = change(out, options)
        return ponder_ref.training_loss(out, targets, criterion, **options)

    return training_loss


def _prior_cut_again(out, options):
    prior = options.get("log_prior")
    if prior is None or out.act is not None:
        return out, options
    prior = prior[: len(out.log_p)]
    return out, {**options, "log_prior": prior - np.log(np.exp(prior).sum(axis=0))}


def _loss_of_the_mean(out, targets, criterion, **options) -> PonderLoss:
    """The loss of the expected prediction, not the expected loss."""
    if out.act is not None:
        return ponder_ref.training_loss(out, targets, criterion, **options)
    mean = ponder_ref.expected_prediction(out.log_p, out.y_hat)
    same = out._replace(y_hat=np.broadcast_to(mean, out.y_hat.shape))
    return ponder_ref.training_loss(same, targets, criterion, **options)


def _summed_axes(out, targets, criterion, **options) -> PonderLoss:
    def summed(y_hat, targets):
        values = criterion(y_hat, targets)
        return values.sum(axis=-1) if values.ndim > out.halt_logits.ndim - 1 else values

    return ponder_ref.training_loss(out, targets, summed, **options)


def _unstable_bce(y_hat, targets):
    """log σ as a logarithm of a probability."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        p = 1 / (1 + np.exp(-right.as_float(y_hat)))
        return -targets * np.log(p) - (1 - targets) * np.log(1 - p)


def _recurrence_twice(params, projected, h):
    return np.tanh(projected + h @ params["rnn.w_h"] + params["rnn.b"])


def _mutant(name: str, defect: str, requirement: str, **replaced) -> Mutant:
    return Mutant(name, defect, requirement, replaced)


MUTANTS = (
    _mutant("start-detached", "no gradient into the initial state", "M7", ponder=_detached_start),
    _mutant("input-detached", "no gradient into the input", "M7", ponder=_detached_input),
    _mutant("a-step-too-far", "a halted example takes one more step", "M7", ponder=_a_step_too_far),
    _mutant("readout-of-nothing", "predictions of a readout are zeros", "M1", ponder=_readout_of_nothing),
    _mutant("first-example-s-prior", "the first one's prior for all", "M6", training_loss=_loss(_first_prior)),
    _mutant("masks-ignored", "boolean weights have no effect", "M6", training_loss=_loss(_masks_ignored)),
    _mutant("a-prior-always", "a uniform prior where none is given", "M6", training_loss=_loss(_uniform_instead)),
    _mutant("multiplied-by-zero", "losses beyond Nᵢ are multiplied by 0", "M6", training_loss=_multiplied),
    _mutant("steps-in-one-batch", "the criterion sees all steps as a batch", "M6", training_loss=_steps_in_one_batch),
    _mutant(
        "weightless-targets-seen",
        "targets of weight 0 reach the criterion",
        "M6",
        training_loss=_seen_by_the_criterion(False, True),
    ),
    _mutant(
        "weightless-predictions-seen",
        "predictions of weight 0 reach the criterion",
        "M6",
        training_loss=_seen_by_the_criterion(True, False),
    ),
    _mutant("squared-error-stretches", "shapes are broadcast", "M5", squared_error=_stretched),
    _mutant(
        "soft-targets-rounded",
        "targets are rounded to 0 and 1",
        "M5",
        binary_cross_entropy=lambda y_hat, targets: ponder_ref.binary_cross_entropy(y_hat, np.round(targets)),
    ),
    _mutant(
        "projection-detached",
        "no gradient into the input weights",
        "M8",
        rnn_project=lambda params, x: detach(ponder_ref.rnn_project(params, x)),
    ),
    _mutant("step-one-blind", "step 1 does not see the input", "M1", ponder=_blind_first_step),
    _mutant("one-call-too-many", "the step is called N + 1 times", "M1", ponder=_one_call_too_many),
    _mutant("one-step-short", "N − 1 steps", "M1", ponder=_around(max_steps=lambda o: max(1, o["max_steps"] - 1))),
    _mutant(
        "grown-state-dropped", "a state that begins as nothing is not carried on", "M1", ponder=_grown_state_dropped
    ),
    _mutant("states-forgotten", "every step starts from h₀", "M1", ponder=_state_not_passed_on),
    _mutant("remainder-ignored", 'always "last"', "M1", ponder=_around(remainder=lambda o: "last")),
    _mutant("no-gradient-between-steps", "states are detached", "M7", ponder=_detached_states),
    _mutant("epsilon-of-the-batch", "all are cut at the batch's largest N", "M2", ponder=_batch_length),
    _mutant("epsilon-ignored", "no example leaves early", "M2", ponder=_around(epsilon=lambda o: None)),
    _mutant("epsilon-saves-nothing", "all N steps are run", "M2", ponder=_never_leaves),
    _mutant("epsilon-one-short", "cut one step too early", "M2", ponder=_lengths_one_short),
    _mutant("module-min-steps-ignored", "min_steps is 1", "M2", ponder=_around(min_steps=lambda o: 1)),
    _mutant("halted-states-run-on", "a halted example's state goes on", "M2", ponder=_states_run_on),
    _mutant("repeat-answers-by-the-mean", "repeat averages its steps", "M3", ponder=_mean_answer),
    _mutant(
        "once-is-repeat",
        "once runs N steps",
        "M3",
        ponder=_around(method=lambda o: "repeat" if o.get("method") == "once" else o.get("method", "ponder")),
    ),
    _mutant("act-module-without-remainder", "the last weight is λ", "M4", ponder=_act_without_remainder),
    _mutant("act-epsilon-ignored", "ε_ACT is always 0.01", "M4", ponder=_around(act_epsilon=lambda o: 0.01)),
    _mutant(
        "prior-cut-again", "the prior is normalised over the steps run", "M6", training_loss=_loss(_prior_cut_again)
    ),
    _mutant("loss-of-the-mean", "loss of the expected prediction", "M6", training_loss=_loss_of_the_mean),
    _mutant("axes-summed", "losses beyond the batch are summed", "M6", training_loss=_summed_axes),
    _mutant(
        "module-weights-ignored",
        "weights have no effect",
        "M6",
        training_loss=_loss(lambda out, options: (out, {**options, "weights": None})),
    ),
    _mutant(
        "module-tau-ignored",
        "ACT's cost is left out",
        "M6",
        training_loss=_loss(lambda out, o: (out, {**o, "tau": 0.0})),
    ),
    _mutant(
        "halting-detached-in-the-loss",
        "no gradient through the distribution",
        "M7",
        training_loss=_loss(lambda out, o: (out if out.log_p is None else out._replace(log_p=detach(out.log_p)), o)),
    ),
    _mutant("bce-by-probability", "log of a rounded probability", "M5", binary_cross_entropy=_unstable_bce),
    _mutant(
        "cross-entropy-unnormalised",
        "the logit alone",
        "M5",
        cross_entropy=lambda y, t: -np.take_along_axis(y, np.asarray(t)[..., None], -1)[..., 0],
    ),
    _mutant(
        "bias-twice", "the bias is added at the projection and at the step", "M8", rnn_transition=_recurrence_twice
    ),
)
