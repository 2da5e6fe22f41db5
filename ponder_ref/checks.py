"""Argument checks that every backend shares: shapes, dtypes and Python numbers, never array values (spec B4).

The functions look at `.shape` and `.dtype` only, so they serve NumPy, torch and JAX arrays alike, tracers included.
Only `check_distribution` looks at values: a module's own prior, once, when the module is made and they are there.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

LOW_PRECISION = ("bfloat16", "float16")
FLOATS = (*LOW_PRECISION, "float32", "float64", "complex128")  # complex128: tangents of the reference's complex step
MOST_STEPS, MOST_LAYERS = 2**16 - 1, 1000  # of a network that is described; S2 counts no further
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class SettingError(ValueError):
    """A setting that is refused: its name, and what is said of it. The whole sentence is both."""

    def __init__(self, name: str, said: str):
        super().__init__(f"{name} {said}")
        self.name, self.said = name, said


def dtype_name(x: Any) -> str:
    """ "float32" for NumPy, torch and JAX arrays alike."""
    return str(x.dtype).removeprefix("torch.")


def quoted(value: Any, longest: int = 100) -> str:
    r"""A value as a sentence quotes it: its repr on one line, and of a long one its beginning.

    >>> print(quoted("a\nb"), quoted("long " * 1000, 20))
    'a\nb' 'long long long long… (5002 characters)
    """
    try:
        shown = " ".join(repr(value).split("\n"))  # arrays have lines
    except ValueError:  # an integer of more digits than Python writes
        return f"a number of {type(value).__name__} that is too long to be shown"
    return shown if len(shown) <= longest else f"{shown[:longest]}… ({len(shown)} characters)"


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SettingError(name, f"must be one of {', '.join(choices)}, got {quoted(value)}")


def check_word(name: str, value: Any) -> None:
    if not (isinstance(value, str) and value.isprintable() and value.split() == [value]):
        raise SettingError(name, f"must be a word, got {quoted(value)}")


def check_array(name: str, x: Any) -> None:
    """A backend array is anything with a shape and a dtype; a list or a bare number is not."""
    if not (hasattr(x, "shape") and hasattr(x, "dtype")):
        raise ValueError(f"{name} must be an array, got {type(x).__name__} {quoted(x)}")


def check_floating(name: str, x: Any) -> None:
    check_array(name, x)
    if dtype_name(x) not in FLOATS:
        raise ValueError(f"{name} must have a floating dtype, got {dtype_name(x)}")


def check_integer(name: str, x: Any) -> None:
    check_array(name, x)
    if dtype_name(x) not in INTEGERS:
        raise ValueError(f"{name} must have an integer dtype, got {dtype_name(x)}")


def check_batch(name: str, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise ValueError(f"{name} must not have an empty batch, got batch shape {tuple(shape)}")


def check_steps_first(name: str, x: Any) -> None:
    """`[N, ...batch]` with N >= 1, a batch that is not empty, and a floating dtype."""
    check_floating(name, x)
    if len(x.shape) < 1:
        raise ValueError(f"{name} must have the step axis first, got shape ()")
    if x.shape[0] < 1:
        raise ValueError(f"{name} must have at least one step, got shape {tuple(x.shape)}")
    check_batch(name, tuple(x.shape[1:]))


def check_shape(name: str, x: Any, shape: tuple[int, ...], of: str) -> None:
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} must have the shape {tuple(shape)} of {of}, got {tuple(x.shape)}")


def check_arrays(of: str, arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Names and shapes of arrays are those of something, no more and no fewer."""
    missing, unknown = sorted(set(shapes) - set(arrays)), sorted(set(arrays) - set(shapes))
    if missing or unknown:
        raise ValueError(f"the arrays must have the names of {of}: missing {missing}, unknown {unknown}")
    for name, shape in shapes.items():
        check_shape(name, arrays[name], shape, of)


def check_lengths(lengths: Any, batch: tuple[int, ...]) -> None:
    if lengths is not None:
        check_integer("lengths", lengths)
        check_shape("lengths", lengths, batch, "the batch")


def check_like(name: str, x: Any, log_p: Any, of: str = "log_p") -> None:
    """A float array of exactly the shape of log_p."""
    check_floating(name, x)
    check_shape(name, x, tuple(log_p.shape), of)


def check_predictions(y_hat: Any, steps_shape: tuple[int, ...], of: str) -> None:
    """`y_hat` is `[N, ...batch, ...]`: it begins with the shape of the weights it is averaged by."""
    check_floating("y_hat", y_hat)
    if tuple(y_hat.shape[: len(steps_shape)]) != tuple(steps_shape):
        raise ValueError(
            f"y_hat must begin with the shape {tuple(steps_shape)} of {of}, got shape {tuple(y_hat.shape)}"
        )
    check_batch("y_hat", tuple(y_hat.shape))


def check_log_prior(log_prior: Any, log_p: Any) -> None:
    """A prior is `[N]`, the same for all examples, or has the shape of log_p."""
    check_floating("log_prior", log_prior)
    if tuple(log_prior.shape) not in ((log_p.shape[0],), tuple(log_p.shape)):
        raise ValueError(
            f"log_prior must have shape {(log_p.shape[0],)} or {tuple(log_p.shape)}, got {tuple(log_prior.shape)}"
        )


def check_distribution(name: str, values: Any, dtype: str) -> None:
    """A module's own prior, as float64 NumPy: logarithms of probabilities; one that is none would train in silence."""
    with np.errstate(over="ignore"):
        total = float(np.exp(values).sum())
    if not abs(total - 1) <= (0.05 if dtype in LOW_PRECISION else 1e-3):  # a NaN is in no interval
        raise ValueError(f"{name} must be logarithms of probabilities that sum to 1, got a sum of {total:g}")


def check_weights(weights: Any, batch: tuple[int, ...]) -> None:
    if weights is not None:
        check_array("weights", weights)
        if dtype_name(weights) != "bool":
            check_floating("weights", weights)
        check_shape("weights", weights, batch, "the batch")


def check_remainder(remainder: str) -> None:
    if remainder not in ("last", "normalize"):
        raise SettingError("remainder", f'must be "last" or "normalize", got {quoted(remainder)}')


def is_number(value: Any, interval: str) -> bool:
    """Whether it is a Python number in an interval written as in mathematics: "(0, 1]", "[0, inf)"."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    low, high = (float(end) for end in interval[1:-1].split(","))
    try:
        number = float(value)  # a NaN fails every comparison
    except OverflowError:  # an integer that no float holds
        return False
    above = number > low or (interval[0] == "[" and number == low)
    return above and (number < high or (interval[-1] == "]" and number == high))


def check_number(name: str, value: Any, interval: str) -> None:
    """A Python number in the interval (`is_number`)."""
    if not is_number(value, interval):
        raise SettingError(name, f"must be a number in {interval}, got {quoted(value)}")


def check_scalar(name: str, value: Any, interval: str) -> None:
    """A Python number in the interval, or a scalar array, whose value is not looked at."""
    if isinstance(value, Real) or not hasattr(value, "shape"):
        check_number(name, value, interval)
    elif tuple(value.shape) != ():
        raise ValueError(f"{name} must be a number or a scalar array, got shape {tuple(value.shape)}")


def is_count(value: Any, low: int, high: int | None = None) -> bool:
    """Whether it is a Python integer in low..high."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and int(value) >= low and (high is None or int(value) <= high)


def check_count(name: str, value: Any, low: int, high: int | None = None) -> None:
    """A Python integer in low..high."""
    if not is_count(value, low, high):
        bounds = f"of at least {low}" if high is None else f"in {low}..{high}"
        raise SettingError(name, f"must be an integer {bounds}, got {quoted(value)}")


def check_update_number(step: Any) -> None:
    """The number of an update: a Python integer from 1, or a scalar integer array."""
    if hasattr(step, "shape") and not isinstance(step, Integral):
        check_integer("step", step)
        check_shape("step", step, (), "a scalar")
    else:
        check_count("step", step, 1)


def check_dtype(dtype: str) -> None:
    if dtype not in ("float32", "float64"):
        raise ValueError(f'dtype must be "float32" or "float64", got {quoted(dtype)}')


def check_like_targets(y_hat: Any, targets: Any) -> None:
    """Targets (of any number dtype) of exactly the shape of the prediction."""
    check_floating("y_hat", y_hat)
    check_array("targets", targets)
    check_shape("targets", targets, tuple(y_hat.shape), "y_hat")


def check_classes(y_hat: Any, targets: Any) -> None:
    """Predictions `[..., classes]` and integer targets `[...]`."""
    check_floating("y_hat", y_hat)
    check_integer("targets", targets)
    if len(y_hat.shape) < 1 or y_hat.shape[-1] < 1:
        raise ValueError(f"y_hat must have the classes as its last axis, got shape {tuple(y_hat.shape)}")
    check_shape("targets", targets, tuple(y_hat.shape[:-1]), "y_hat without its last axis")


METHODS = ("ponder", "act", "repeat", "once")


def check_pondering(max_steps, method, min_steps, epsilon, remainder, act_epsilon, methods=METHODS) -> None:
    """The arguments of `ponder` that are Python values."""
    check_count("max_steps", max_steps, 1)
    check_choice("method", method, methods)
    check_count("min_steps", min_steps, 1, max_steps)
    if epsilon is not None:
        check_number("epsilon", epsilon, "(0, 1)")
        if method != "ponder":
            said = f'is for method "ponder" alone, got epsilon {quoted(epsilon)} with method {quoted(method)}'
            raise SettingError("epsilon", said)
    check_remainder(remainder)
    check_number("act_epsilon", act_epsilon, "(0, 1)")


def check_prices(lambda_p: Any, beta: Any, tau: Any) -> None:
    """The prior's parameter and the weights of the KL and of ACT's cost, of a module or a training."""
    check_number("lambda_p", lambda_p, "(0, 1]")
    check_number("beta", beta, "[0, inf)")
    check_number("tau", tau, "[0, inf)")


def step_result(result: Any) -> Any:
    """What a step network returned, which must be three things."""
    if not isinstance(result, tuple | list) or len(result) != 3:
        found = f"{len(result)} things" if isinstance(result, tuple | list) else type(result).__name__
        raise ValueError(f"step must return (y_hat, state, halt_logit), got {found}")
    return result


def check_step_result(y_hat: Any, halt_logit: Any) -> None:
    """One halting logit an example, and a prediction that begins with the same batch shape."""
    check_floating("halt_logit", halt_logit)
    check_floating("y_hat", y_hat)
    check_batch("halt_logit", tuple(halt_logit.shape))
    if tuple(y_hat.shape[: len(halt_logit.shape)]) != tuple(halt_logit.shape):
        raise ValueError(
            f"halt_logit must have one number an example: its shape {tuple(halt_logit.shape)} is not the beginning of "
            f"the prediction's shape {tuple(y_hat.shape)}"
        )


def check_unrolled(found: Any, max_steps: int) -> None:
    """What a step's own unroll gave: y_hat `[n, batch, ...]`, halt_logits `[n, batch]`, state, lengths `[batch]`."""
    if not isinstance(found, tuple | list) or len(found) != 4:
        got = f"{len(found)} things" if isinstance(found, tuple | list) else type(found).__name__
        raise ValueError(f"unroll must return (y_hat, halt_logits, state, lengths) or None, got {got}")
    y_hat, halt_logits, _, lengths = found
    check_floating("halt_logits", halt_logits)
    check_predictions(y_hat, tuple(halt_logits.shape), "halt_logits")
    if not (len(halt_logits.shape) and 1 <= halt_logits.shape[0] <= max_steps):
        raise ValueError(f"unroll must return 1 to {max_steps} steps, got halt_logits {tuple(halt_logits.shape)}")
    check_lengths(lengths, tuple(halt_logits.shape[1:]))


def check_start(initial_state: Any, encoder: Any, project: Any) -> None:
    """A pondering module starts from an initial state or from an encoder, not both."""
    if (initial_state is None) == (encoder is None):
        given = "neither" if encoder is None else "both"
        raise ValueError(f"one of initial_state and encoder must be given, got {given}")
    for name, value in (("initial_state", initial_state), ("encoder", encoder), ("project", project)):
        if value is not None and not callable(value):
            raise ValueError(f"{name} must be a function of the input, got {type(value).__name__}")


def check_criterion(values: Any, batch: tuple[int, ...], y_hat: Any) -> None:
    """A criterion gives one value an example, or several, which are then averaged; not one for the whole batch.

    Axes beyond the batch must be the prediction's: those of a prediction stretched against its targets are not.
    """
    check_array("criterion", values)
    if tuple(values.shape[: len(batch)]) != tuple(batch):
        raise ValueError(
            f"criterion must give one value an example: its result has shape {tuple(values.shape)}, which does not"
            f" begin with the batch's {tuple(batch)}"
        )
    if tuple(values.shape) != tuple(y_hat.shape[: len(values.shape)]):
        raise ValueError(
            f"criterion must give one value an example, or one for each entry of the prediction: its result has shape "
            f"{tuple(values.shape)}, the prediction {tuple(y_hat.shape)}; have prediction and targets the same shape?"
        )


def check_exit(rule: Any, policies: Sequence[str]) -> None:
    """The exit policy of `predict`, one of these, and its numbers: an `ExitRule`."""
    check_choice("policy", rule.policy, policies)
    check_count("max_steps", rule.max_steps, 1, MOST_STEPS)
    check_count("seed", rule.seed, 0, 2**64 - 1)
    check_count("draw", rule.draw, 0, 2**12 - 1)
    check_number("q", rule.q, "(0, 1]")
    check_number("epsilon", rule.epsilon, "(0, 1)")
    check_count("min_steps", rule.min_steps, 1, rule.max_steps)
    check_remainder(rule.remainder)


def check_examples(leaves: list[tuple[str, Any]], example_ids: Any, slots: Any) -> int:
    """The number of examples: the first axis of every leaf of the input and the state, which it checks."""
    if not leaves:
        raise ValueError("x and state must have at least one array with an axis of examples, got none")
    for name, leaf in leaves:
        check_array(name, leaf)
        if 0 in tuple(leaf.shape)[:1]:
            raise ValueError(f"{name} must have at least one example, got shape {tuple(leaf.shape)}")
        if len(leaf.shape) < 1 or leaf.shape[0] != leaves[0][1].shape[0]:
            raise ValueError(
                f"{name} must have the examples as the first axis of every leaf (what all share belongs into the step),"
                f" got shape {tuple(leaf.shape)} beside {tuple(leaves[0][1].shape)}"
            )
    count = leaves[0][1].shape[0]
    if example_ids is not None:
        check_integer("example_ids", example_ids)
        check_shape("example_ids", example_ids, (count,), "the examples")
    if slots is not None:
        check_count("slots", slots, 1)
    return count


def check_answer(y_hat: Any, halt_logit: Any, rows: int) -> None:
    """A step's result for a batch of that many rows."""
    check_step_result(y_hat, halt_logit)
    if tuple(halt_logit.shape) != (rows,):
        raise ValueError(f"halt_logit must have one number an example, shape {(rows,)}, got {tuple(halt_logit.shape)}")


def check_predictable(method: str, policy: str) -> None:
    """Which exit policies a module's method of training allows."""
    if method not in ("ponder", "repeat", "once"):
        raise ValueError(f'predict is for methods "ponder", "repeat" and "once", got a module with method "{method}"')
    if method != "ponder" and policy != "fixed":
        raise ValueError(f'policy must be "fixed" for a module with method {quoted(method)}, got {quoted(policy)}')


def check_stream(slots: Any, first_id: Any) -> None:
    """The arguments of `stream` that `predict` does not have."""
    check_count("slots", slots, 1)
    check_count("first_id", first_id, 0)
