"""What the judge must not ask for, what it must not let pass, and that its draws depend on nothing but their seed."""

import functools
import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ponder_ref
from ponder_ref.conformance.cases import SHAPES, Chosen, every_option
from ponder_ref.conformance.interface import FUNCTIONS, OPTIMISERS
from ponder_ref.conformance.mutants.__main__ import DEFECTS
from ponder_ref.conformance.mutants.base import Mutant, backend
from ponder_ref.conformance.processes import jobs
from ponder_ref.conformance.registry import GROUPS, Trial
from ponder_ref.conformance.run import judge
from ponder_ref.conformance.subject import Subject, options_used

OPTIONS = ("H3", "H4", "L3", "P2")


def failures(subject, **settings) -> dict[str, list[str]]:
    verdicts = judge(subject, **{"examples": 3, "shrink": False, **settings})
    return {v.requirement: v.failures for v in verdicts.values() if v.status == "failed"}


def refusing(*missing: str) -> SimpleNamespace:
    """The reference without some options: asked for one, it raises."""

    def wrap(name, function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments
            used = options_used(name, given, given) & set(missing)
            if used:
                raise NotImplementedError(f"{name} has no {used}")
            return function(*args, **kwargs)

        return call

    replaced = {name: wrap(name, getattr(ponder_ref, name)) for name in FUNCTIONS}
    return backend(Mutant("some", "", "", {**replaced, "NOT_OFFERED": ("compiled", "vmapped", *missing)}))


@pytest.mark.parametrize("missing", [*((name,) for name in OPTIONS), OPTIONS], ids="-".join)
def test_an_option_that_is_not_offered_is_not_tried(missing):
    assert failures(refusing(*missing)) == {}


def test_an_option_that_is_offered_is_tried():
    """The test above can fail: without the declaration the same backend is rejected."""
    silent = refusing(*OPTIONS)
    silent.NOT_OFFERED = ("compiled", "vmapped")
    assert {"H3", "H4", "L3", "P2"} <= set(failures(silent))


@pytest.mark.parametrize("dtypes", [("float16",), ["float64", "float32"]], ids=repr)
def test_dtypes_may_be_half_precision_alone_or_a_list(dtypes):
    verdicts = judge(backend(Mutant("dtypes", "", "", {}, dtypes)), examples=3, shrink=False)
    assert [v.failures for v in verdicts.values() if v.failures] == []
    assert verdicts["B4"].status == verdicts["B1"].status == "passed"


def more_keywords(fn, *arrays, constants=(), batched=False, **others):
    return ponder_ref.value_and_grad(fn, *arrays, constants=constants)


def one_more_argument(fn, scale, *arrays, constants=()):
    return ponder_ref.value_and_grad(fn, *arrays, constants=constants)


@pytest.mark.parametrize(("transform", "failed"), [(more_keywords, False), (one_more_argument, True)])
def test_transforms_may_have_further_keywords(transform, failed):
    found = failures(backend(Mutant("keywords", "", "", {"value_and_grad": transform})), only={"B2"})
    assert ("B2" in found) == failed


def stretched_losses(log_p, step_losses):
    return ponder_ref.expected_loss(log_p, np.broadcast_to(step_losses, log_p.shape).copy())


def stretched_lengths(halt_logits, *, remainder="last", lengths=None):
    if lengths is not None and lengths.shape == (1,):
        lengths = np.broadcast_to(lengths, halt_logits.shape[1:])
    return ponder_ref.log_halting(halt_logits, remainder=remainder, lengths=lengths)


def no_integers(log_p, step_losses, log_prior, *, beta, weights=None):
    if isinstance(beta, int):
        raise ValueError(f"beta must be a float, got {beta}")
    return ponder_ref.ponder_loss(log_p, step_losses, log_prior, beta=beta, weights=weights)


def without_the_value(log_p, *, q):
    if not 0 < q <= 1:
        raise ValueError("q is out of range")
    return ponder_ref.quantile_steps(log_p, q=q)


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"expected_loss": stretched_losses}, "expected_loss"),
        ({"log_halting": stretched_lengths}, "names 'lengths'"),
        ({"ponder_loss": no_integers}, "beta must be a float, got 1"),
        ({"quantile_steps": without_the_value}, "does not say what was given for 'q'"),
    ],
)
def test_what_bad_arguments_come_to_is_judged(replaced, said):
    found = failures(backend(Mutant("careless", "", "", replaced)), only={"B4"})
    assert said in found["B4"][0]


DRAWS = """
import sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "more":
    import many_constants
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.registry import Trial
from ponder_ref.conformance.subject import Subject
import ponder_ref
trial = Trial(Subject(ponder_ref, "r"), "float64", 30, 5, name="draws")
for name in ("ponder_loss", "draw_steps", "poisson_log_prior", "schedule"):
    trial.for_all(lambda source: print(MAKERS[name](source)))
"""


def test_draws_depend_on_the_seed_alone(tmp_path):
    """Hypothesis looks for constants in loaded modules; they must not reach the inputs."""
    constants = ", ".join(f"{k}, {k}.5, {k / 256}" for k in range(100))
    (tmp_path / "many_constants.py").write_text(f"NUMBERS = [{constants}]\n")
    seen = []
    for which in ("none", "more"):
        command = [sys.executable, "-c", DRAWS, str(tmp_path), which]
        seen.append(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    assert seen[0] == seen[1] and len(seen[0].splitlines()) > 100


def test_every_set_of_options_is_tried_whatever_is_drawn():
    from ponder_ref.conformance.makers import MAKERS

    seen = set()

    def body(source) -> None:
        arrays, _ = MAKERS["ponder_loss"](source)
        weights = arrays.get("weights")
        kind = "none" if weights is None else weights.dtype.kind
        cut = bool(np.isneginf(arrays["log_p"]).any())
        seen.add((arrays["step_losses"].shape, kind, arrays["log_prior"].ndim > 1, cut))

    trial = Trial(Subject(ponder_ref, "reference"), "float64", 1, 0, name="options")
    trial.for_all(body)
    for steps, batch in SHAPES:
        for kind in ("none", "b", "f"):
            assert {((steps, *batch), kind, own, False) for own in (False, True)} <= seen


def test_options_are_enumerated_once_each_also_those_that_depend_on_others():
    seen = []

    def body(source) -> None:
        first = source.option("a", 1, 2)
        seen.append((first, source.option("b", "x", "y", "z") if first == 2 else None, source.option("c", True, False)))

    every_option(lambda fixed: Chosen(np.random.default_rng(0), fixed), body)
    assert len(seen) == len(set(seen)) == 8


def test_compiled_code_is_judged_by_the_compiler_as_it_is_and_nothing_twice():
    quick = {"SOME_FLAGS": "-O0"}
    odd = SimpleNamespace(DTYPES=("float64", "float32", "float16"), QUICK=quick, ENVIRONMENT={"float64": {"WIDE": "1"}})
    for level in ("core", "full"):
        todo = jobs(odd, level)
        seen = [(dtype, group) for job in todo for dtype in job.dtypes for group in job.groups]
        assert len(seen) == len(set(seen)) == len(odd.DTYPES) * len(GROUPS)
        for job in todo:
            hurried = "SOME_FLAGS" in job.variables
            assert hurried != (level == "full" and job.groups == ("compiled",))
            assert ("WIDE" in job.variables) == ("float64" in job.dtypes)
        assert [job.dtypes for job in todo if job.once and "names" in job.groups] == [("float64",)]


VALUES = ("prior-epsilon", "quantile-one-short", "act-cost-no-steps", "adam-uncorrected", "adam-eps-inside")
VALUES += ("muon-plain-momentum", "muon-uncorrected", "clip-always", "schedule-from-zero", "off-update-float64")
VALUES += ("off-log_prior-float64", "single-prior")


@pytest.mark.parametrize("name", VALUES)
def test_a_wrong_value_is_not_called_a_wrong_error(name):
    mutant = next(mutant for mutant in DEFECTS if mutant.name == name)
    assert "B4" not in failures(backend(mutant), only={"B4"})


class Spare:
    """An array that knows what the standard lists and nothing more: no dtype, no len, no reshape."""

    def __init__(self, held):
        self.held = np.asarray(held)

    @property
    def shape(self):
        return self.held.shape

    def sum(self):
        return Spare(self.held.sum())

    def __getitem__(self, index):
        assert isinstance(index, int) or Ellipsis in index, index
        return Spare(self.held[index])

    def __mul__(self, other):
        return Spare(self.held * bare(other))

    def __add__(self, other):
        return Spare(self.held + bare(other))

    def __matmul__(self, other):
        return Spare(self.held @ bare(other))

    __rmul__, __radd__, __array_ufunc__ = __mul__, __add__, None


def bare(value: Any) -> Any:
    """The same with NumPy arrays in the place of spare ones."""
    if isinstance(value, dict):
        return {name: bare(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(bare(part) for part in value)
    return value.held if isinstance(value, Spare) else value


def spare(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(spare(part) for part in value))
    if isinstance(value, dict):
        return {name: spare(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(spare(part) for part in value)
    return Spare(value) if isinstance(value, np.ndarray | np.generic) else value


def spare_backend() -> SimpleNamespace:
    right = backend(Mutant("spare", "", "", {}, ("float64", "float32")))

    def wrapped(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return spare(function(*bare(args), **bare(kwargs)))

        return call

    def value_and_grad(fn, *arrays, constants=()):
        def plain(*xs):
            return bare(fn(*map(spare, xs)))

        return spare(ponder_ref.value_and_grad(plain, *bare(arrays), constants=bare(constants)))

    names = {*FUNCTIONS, *OPTIMISERS} - {"schedule"}
    members: dict[str, Any] = {name: wrapped(getattr(right, name)) for name in names}
    members |= {"value_and_grad": value_and_grad, "to_numpy": lambda x: ponder_ref.to_numpy(bare(x))}
    members["from_numpy"] = lambda array, dtype: Spare(ponder_ref.from_numpy(array, dtype))
    return SimpleNamespace(**{**vars(right), **members})


def test_arrays_need_to_know_no_more_than_the_standard_lists():
    assert failures(spare_backend(), annex=True) == {}
