"""Names, signatures, errors, and arguments left alone (spec B1, B2, B4, B7)."""

import inspect
import re
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance import interface
from ponder_ref.conformance.bad_calls import COUNTS, WHOLE_NUMBERS, bad_calls, refusal
from ponder_ref.conformance.compare import LOW_PRECISION, Violation, assert_close, describe, quantity
from ponder_ref.conformance.makers import MAKERS, every_kind
from ponder_ref.conformance.oracle import INTEGER_FIELDS
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check
from ponder_ref.conformance.spec_data import requirements
from ponder_ref.conformance.subject import round_to

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
    known = {*interface.OPTIONAL, "witness", *requirements()}
    for name in declared:
        if name in interface.REQUIRED or name in ALWAYS:
            raise Violation("B1", f"{name} must be offered, but NOT_OFFERED lists it")
        if name not in known:
            raise Violation("B1", f"NOT_OFFERED lists {name!r}, which is neither a function nor a requirement")
    _names_are_there(trial, (*interface.REQUIRED, *interface.FUNCTIONS, *interface.TRANSFORMS))
    if trial.subject.annex:
        _names_are_there(trial, interface.ANNEX, ", a function of the annex")
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


def _names_are_there(trial: Trial, names: Iterable[str], where: str = "") -> None:
    for name in names:
        if name not in trial.subject.not_offered and not callable(getattr(trial.subject.backend, name, None)):
            raise Violation("B1", f"{name} is missing{where}; offer it or list it in NOT_OFFERED")


def unwritten(backend: Any, levels: Collection[str], annex: bool) -> tuple[str, ...]:
    """The functions of some levels that raise NotImplementedError whatever they are given, as those of a skeleton."""
    tables = [names for level, names in interface.LEVEL_FUNCTIONS.items() if level in levels]
    found = []
    for name in (name for names in (*tables, *[interface.ANNEX] * annex) for name in names):
        parameters = inspect.signature(getattr(ponder_ref, name)).parameters.values()
        nothing = {p.name: None for p in parameters if p.default is inspect.Parameter.empty}
        try:
            result = getattr(backend, name)(**nothing)
            if inspect.isgenerator(result):  # it begins when it is asked for something
                next(result, None)
        except NotImplementedError:
            found.append(name)
        except Exception:
            continue  # it is written: what it says of such arguments is not asked here
    return tuple(found)


def _register_level(level: str, names: Collection[str]) -> None:
    """The names and signatures of the functions that a level adds."""

    @check("B1", "names", dtypes=ANY_DTYPE, level=level, name=f"every name of the level {level} is there")
    def there(trial: Trial) -> None:
        _names_are_there(trial, names, f" at level {level}")

    @check("B2", "signatures", dtypes=ANY_DTYPE, level=level, name=f"signatures of the level {level}")
    def alike(trial: Trial) -> None:
        _compare_signatures(trial, names)


for _level, _names in interface.LEVEL_FUNCTIONS.items():
    if _level != "core":
        _register_level(_level, _names)


@check("B2", "signatures", dtypes=ANY_DTYPE)
def signatures_are_the_reference_s(trial: Trial) -> None:
    _compare_signatures(trial, (*interface.FUNCTIONS, *interface.ANNEX))


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
    if not isinstance(given, np.ndarray):
        spellings = {repr(given), str(given), f"{given:g}" if isinstance(given, (int, float)) else str(given)}
        return any(spelling.lower() in message.lower() for spelling in spellings)
    dtypes = {"f": r"float\d+", "b": "bool"}  # by whatever name the backend holds it
    named = re.search(dtypes.get(given.dtype.kind, r"int\d+"), message) is not None
    numbers, shape = set(re.findall(r"\d+", message)), [str(size) for size in given.shape]
    if not shape:
        return "()" in message or "[]" in message or named
    return named or set(shape) <= numbers or (len(shape) > 1 and set(shape[1:]) <= numbers)


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
        sentence = refusal(call, repr(argument), partial(getattr(subject.backend, function), **converted))
        if argument not in sentence:
            raise Violation("B4", f"{call}: the message {sentence!r} does not name {argument!r}")
        if not _in_message(sentence, arrays.get(argument, arguments.get(argument))):
            raise Violation("B4", f"{call}: the message {sentence!r} does not say what was given for {argument!r}")


@check("B4", "signatures", dtypes=ANY_DTYPE)
def whole_numbers_are_numbers(trial: Trial) -> None:
    """A Python integer is taken wherever a number is meant, and means the same to the backend as the float does."""
    subject = trial.subject
    for function, arrays, arguments in WHOLE_NUMBERS:
        narrow = trial.dtype in LOW_PRECISION and function in FULL_PRECISION
        if not subject.takes(function, arrays, arguments) or narrow:
            continue
        floats = {name: float(n) if isinstance(n, int) and name not in COUNTS else n for name, n in arguments.items()}
        try:
            want = subject.call(function, arrays, floats, trial.dtype)
        except Violation:
            continue  # it cannot be called at all: other requirements speak of that
        got = subject.call(function, arrays, arguments, trial.dtype)
        for field, value in got.items():
            kind = "exact" if INTEGER_FIELDS.get(function) == field else quantity(function, field)
            what = f"{function}[{trial.dtype}].{field} given integers instead of floats"
            same = {"kind": kind, "dtype": trial.dtype, "arguments": {**arrays, **arguments}}
            assert_close("B4", what, value, want[field].astype(np.float64), **same)


@check("B7", "signatures", dtypes=ANY_DTYPE)
def arguments_are_left_alone(trial: Trial) -> None:
    """Every array is the same after the call as before it, whatever options are used."""
    narrow = FULL_PRECISION if trial.dtype in LOW_PRECISION else ()
    offered = [name for name in MAKERS if trial.subject.offers(name) and name not in narrow]
    for function, (arrays, arguments) in ((name, made) for name in offered for made in every_kind(trial, MAKERS[name])):
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
