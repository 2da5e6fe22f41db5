"""Names, signatures, errors, and arguments left alone (spec B1, B2, B4, B7)."""

import inspect
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref import interface
from ponder_ref.conformance.bad_calls import WHOLE_NUMBERS, bad_calls
from ponder_ref.conformance.cases import SHAPES
from ponder_ref.conformance.compare import LOW_PRECISION, Violation, describe
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.oracle import run_and_compare
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check
from ponder_ref.conformance.subject import round_to
from ponder_ref.spec_data import requirements

ALWAYS = ("H1", "H2", "L1", "L2", "L4", "B1", "B2", "B3", "B4", "B5", "B6", "B7")  # what must be offered entails
TRANSFORM_PARAMETERS = {
    "value_and_grad": ("fn", "arrays", "constants"),
    "compiled": ("fn", "optimize"),
    "vmapped": ("fn", "in_axes"),
}
# Optimisers work in the parameter's dtype; they do not take half precision.
FULL_PRECISION = ("adam_update", "muon_update", "orthogonalize", "clip_by_global_norm")


@check("B1", "names", dtypes=ANY_DTYPE)
def every_name_is_there(trial: Trial) -> None:
    """Each function exists or is declared as not offered; what must be offered is; declarations name real things."""
    backend, declared = trial.subject.backend, trial.subject.not_offered
    known = {*interface.OPTIONAL, *requirements(), "witness"}
    for name in declared:
        if name in interface.REQUIRED or name in ALWAYS:
            raise Violation("B1", f"{name} must be offered, but NOT_OFFERED lists it")
        if name not in known:
            raise Violation("B1", f"NOT_OFFERED lists {name!r}, which is neither a function nor a requirement")
    for name in (*interface.REQUIRED, *interface.FUNCTIONS, *interface.TRANSFORMS):
        if name not in declared and not callable(getattr(backend, name, None)):
            raise Violation("B1", f"{name} is missing; offer it or list it in NOT_OFFERED")
    if not isinstance(getattr(backend, "NAME", None), str):
        raise Violation("B1", f"NAME must be a string, got {getattr(backend, 'NAME', None)!r}")
    dtypes = getattr(backend, "DTYPES", None)
    if not isinstance(dtypes, (tuple, list)) or not dtypes or not set(dtypes) <= set(ALL_DTYPES):
        raise Violation("B1", f"DTYPES must be a tuple or list of some of {ALL_DTYPES}, got {dtypes!r}")
    if trial.subject.unwritten:
        raise Violation(
            "B1",
            f"not written yet: {', '.join(trial.subject.unwritten)}, which raise NotImplementedError;"
            " write them, or list in NOT_OFFERED those that need not be offered",
        )


def unwritten(backend: Any) -> tuple[str, ...]:
    """The functions that raise NotImplementedError whatever they are given, as those of a skeleton do."""
    found = []
    for name in interface.FUNCTIONS:
        parameters = inspect.signature(getattr(ponder_ref, name)).parameters.values()
        nothing = {p.name: None for p in parameters if p.default is inspect.Parameter.empty}
        try:
            getattr(backend, name)(**nothing)
        except NotImplementedError:
            found.append(name)
        except Exception:
            continue  # it is written: what it says of such arguments is not asked here
    return tuple(found)


@check("B1", "names", dtypes=ANY_DTYPE, level="module")
def every_name_of_the_level_module_is_there(trial: Trial) -> None:
    for name in interface.MODULE_FUNCTIONS:
        if name not in trial.subject.not_offered and not callable(getattr(trial.subject.backend, name, None)):
            raise Violation("B1", f"{name} is missing at level module; offer it or list it in NOT_OFFERED")


@check("B2", "signatures", dtypes=ANY_DTYPE)
def signatures_are_the_reference_s(trial: Trial) -> None:
    _compare_signatures(trial, interface.FUNCTIONS)


@check("B2", "signatures", dtypes=ANY_DTYPE, level="module")
def signatures_of_the_level_module(trial: Trial) -> None:
    _compare_signatures(trial, interface.MODULE_FUNCTIONS)


def _compare_signatures(trial: Trial, names: Iterable[str]) -> None:
    """Same parameters, kinds and defaults; further keyword parameters with defaults are allowed."""
    for name in names:
        if not trial.subject.offers(name):
            continue
        should = inspect.signature(getattr(ponder_ref, name)).parameters
        have = inspect.signature(getattr(trial.subject.backend, name)).parameters
        for parameter, want in should.items():
            got = have.get(parameter)
            if got is None:
                raise Violation("B2", f"{name} lacks the parameter {parameter!r}")
            if (got.kind, got.default) != (want.kind, want.default):
                raise Violation(
                    "B2", f"{name}: parameter {got} of kind {got.kind.name}, should be {want} {want.kind.name}"
                )
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        plain = [p for p in have if have[p].kind not in by_name]
        if plain != [p for p in should if should[p].kind not in by_name]:
            raise Violation("B2", f"{name}: positional parameters {plain}, should be in the order of {list(should)}")
        for extra in set(have) - set(should):
            if have[extra].default is inspect.Parameter.empty and have[extra].kind is not inspect.Parameter.VAR_KEYWORD:
                raise Violation(
                    "B2", f"{name} has a parameter {extra!r} without a default that the standard does not know"
                )


@check("B2", "signatures", dtypes=ANY_DTYPE)
def transforms_have_the_parameters_the_judge_uses(trial: Trial) -> None:
    """The judge's calls fit; further keyword parameters with defaults, and **keywords, are allowed."""
    for name, needed in TRANSFORM_PARAMETERS.items():
        if trial.subject.offers(name):
            have = inspect.signature(getattr(trial.subject.backend, name)).parameters
            extra = [have[p] for p in have if p not in needed]
            allowed = all(
                p.kind is p.VAR_KEYWORD or (p.kind is p.KEYWORD_ONLY and p.default is not p.empty) for p in extra
            )
            if tuple(p for p in have if p in needed) != needed or not allowed:
                raise Violation("B2", f"{name} has the parameters {tuple(have)}, should be {needed}")


def _in_message(message: str, given: Any) -> bool:
    """Whether a sentence says what was given: a number, a word, or an array's dtype or the sizes of its axes."""
    if not hasattr(given, "shape"):
        spellings = {repr(given), str(given), f"{given:g}" if isinstance(given, (int, float)) else str(given)}
        return any(spelling.lower() in message.lower() for spelling in spellings)
    dtype = str(given.dtype).split(".")[-1]
    numbers, shape = set(re.findall(r"\d+", message)), [str(size) for size in given.shape]
    if not shape:
        return "()" in message or "[]" in message or dtype in message
    return dtype in message or set(shape) <= numbers or (len(shape) > 1 and set(shape[1:]) <= numbers)


@check("B4", "signatures", dtypes=ANY_DTYPE)
def bad_arguments_are_named(trial: Trial) -> None:
    """A ValueError whose sentence names the argument and what was given, for every bad input the standard lists."""
    subject = trial.subject
    for function, argument, arrays, arguments in bad_calls():
        narrow = trial.dtype in LOW_PRECISION and function in FULL_PRECISION
        if narrow or not subject.takes(function, arrays, arguments):
            continue
        parts = [f"{k} of shape {v.shape} and dtype {v.dtype}" for k, v in arrays.items()]
        call = f"{function}({', '.join([*parts, *(f'{k}={v!r}' for k, v in arguments.items())])})"
        converted = subject.arguments(function, arrays, arguments, trial.dtype)
        try:
            getattr(subject.backend, function)(**converted)
        except ValueError as error:
            sentence = str(error)
        except Exception as error:
            raise Violation("B4", f"{call} raised {type(error).__name__}, should be a ValueError") from None
        else:
            raise Violation("B4", f"{call} raised nothing, should be a ValueError that names {argument!r}")
        if argument not in sentence:
            raise Violation("B4", f"{call}: the message {sentence!r} does not name {argument!r}")
        if not _in_message(sentence, converted[argument]):
            raise Violation("B4", f"{call}: the message {sentence!r} does not say what was given for {argument!r}")


@check("B4", "signatures", dtypes=ANY_DTYPE)
def whole_numbers_are_numbers(trial: Trial) -> None:
    """A Python integer is taken wherever a number is meant, and means the same."""
    for function, arrays, arguments in WHOLE_NUMBERS:
        narrow = trial.dtype in LOW_PRECISION and function in FULL_PRECISION
        if trial.subject.takes(function, arrays, arguments) and not narrow:
            run_and_compare(trial.subject, "B4", function, arrays, arguments, trial.dtype)


@check("B7", "signatures", dtypes=ANY_DTYPE)
def arguments_are_left_alone(trial: Trial) -> None:
    """Every array is the same after the call as before it."""
    rng = trial.rng()
    narrow = FULL_PRECISION if trial.dtype in LOW_PRECISION else ()
    offered = [name for name in MAKERS if trial.subject.offers(name) and name not in narrow]
    for function, make in ((name, MAKERS[name]) for name in offered for _ in range(3)):
        steps, batch = SHAPES[rng.integers(len(SHAPES))]
        arrays, arguments = make(trial.seeded(steps, batch, rng))
        arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
        given = trial.subject.arguments(function, arrays, arguments, trial.dtype)
        with trial.subject.blamed(function, arrays, arguments, trial.dtype):
            getattr(trial.subject.backend, function)(**given)
        for name, before in arrays.items():
            short = name.removeprefix("grads.")
            held = given["grads"][short] if name.startswith("grads.") else given[name]
            parts = held if isinstance(held, tuple) else (held,)
            after = np.stack([trial.subject.numpy(function, part) for part in parts])
            after = after if isinstance(held, tuple) else after[0]
            wrapped = before % 2**32 if short == "example_ids" else before
            if not np.array_equal(after, before, equal_nan=True) and not np.array_equal(after, wrapped):
                changed = f"was {describe(before)}, is {describe(after)}"
                raise Violation("B7", f"{function}[{trial.dtype}] modified its argument {name}: {changed}")
