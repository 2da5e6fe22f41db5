"""Golden vectors: one check a requirement and dtype, over all the cases that cite it first."""

import numpy as np

import ponder_ref
from ponder_ref.base import Pondered
from ponder_ref.conformance import spec_data
from ponder_ref.conformance.compare import LOW_PRECISION, Violation, assert_close
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import assert_agrees
from ponder_ref.conformance.pondered import on_backend
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.subject import options_used

# What a case names instead of giving it: a criterion. Such cases belong to the level of the function, module.
NAMED = {"training_loss": ("cross_entropy", "squared_error")}
FLOATS = ("float64", "float32")


def applies(case: dict, function: str, dtype: str) -> bool:
    """A case runs in float64 and float32 unless it says otherwise, and in half precision where it says so."""
    if dtype in LOW_PRECISION:
        return case.get("half", False) and not function.startswith("grad_")
    return dtype in case.get("dtypes", FLOATS)


def run_value_case(trial: Trial, function: str, case: dict) -> None:
    arrays, arguments = case["arrays"], case["arguments"]
    got = trial.subject.call(function, arrays, arguments, trial.dtype)
    want = case["expected"]
    requirement = case["spec"][0]
    assert_agrees(requirement, function, arrays, arguments, got, trial.dtype, want=want, ties=False)


def run_pondering_case(trial: Trial, function: str, case: dict) -> None:
    """A loss of pondering, whose criterion is named: as L4 with the step losses that the criterion gives."""
    arrays, (criterion, beta) = case["arrays"], (case["arguments"][name] for name in ("criterion", "beta"))
    given = {name: on_backend(trial, array) for name, array in arrays.items()}
    steps, size = arrays["log_p"].shape
    lengths = on_backend(trial, np.full(size, steps, np.int32))
    out = Pondered(given["y_hat"], given["log_p"], given["log_p"], lengths, None, None)
    options = {name: given[name] for name in ("log_prior", "weights")}
    try:
        made = trial.subject.backend.training_loss(
            out, given["targets"], getattr(trial.subject.backend, criterion), beta=beta, **options
        )
    except (ValueError, IndexError, RuntimeError) as error:
        raise Violation(
            case["spec"][0], f"{case['id']}[{trial.dtype}] raised {type(error).__name__}: {error}"
        ) from None
    got = {name: trial.subject.backend.to_numpy(value) for name, value in made._asdict().items()}
    live = arrays["weights"] != 0
    targets = np.where(live, arrays["targets"], 0)
    with np.errstate(all="ignore"):
        losses = [getattr(ponder_ref, criterion)(y_hat, targets) for y_hat in arrays["y_hat"]]
    parts = {**arrays, "step_losses": np.where(live, losses, 0)}
    parts = {name: parts[name] for name in ("log_p", "step_losses", "log_prior", "weights")}
    common = {"want": case["expected"], "ties": False}
    assert_agrees(case["spec"][0], "ponder_loss", parts, {"beta": beta}, got, trial.dtype, **common)


def run_gradient_case(trial: Trial, function: str, case: dict) -> None:
    objective = OBJECTIVES[function].make(trial.subject, case["arrays"], case["arguments"], trial.dtype)
    given = [case["arrays"][name] for name in objective.wrt]
    value, grads = trial.subject.gradients(objective.fn, given, trial.dtype, objective.constants)
    requirement = case["spec"][-1]
    common = {"dtype": trial.dtype, "arguments": {**case["arrays"], **case["arguments"]}}
    what = f"{case['id']}[{trial.dtype}]"
    wanted = case["expected"]["value"]
    lift = np.maximum(-wanted, 0) if function == "grad_ponder_loss" and not case["arrays"]["step_losses"].any() else 0.0
    sized = {"terms": objective.size, "slack": lift}  # a loss that is the KL alone (L2)
    assert_close(requirement, f"{what} value", value, wanted, kind="loss", **sized, **common)
    for name, grad, noise in zip(objective.wrt, grads, objective.magnitudes, strict=True):
        if name in case["expected"]:
            want = case["expected"][name]
            if np.all(lift > 0) and name == "halt_logits" and not grad.any():
                continue  # a KL that is returned as 0 has no slope
            assert_close(requirement, f"{what} gradient by {name}", grad, want, kind="gradient", terms=noise, **common)
            _exact_zeros(requirement, what, name, grad, want, noise)


def _exact_zeros(requirement: str, what: str, name: str, grad: np.ndarray, want: np.ndarray, noise: np.ndarray) -> None:
    """Where nothing at all contributes, the gradient is 0 exactly, not nearly."""
    silent = (want == 0) & (noise == 0)
    assert_close(
        requirement, f"{what} gradient by {name}", np.where(silent, grad, 0), want * 0, kind="exact", dtype="float64"
    )


def _register(requirement: str, function: str, cases: list[dict]) -> None:
    gradient = function.startswith("grad_")
    needs = (*OBJECTIVES[function].needs, "value_and_grad") if gradient else (function, *NAMED.get(function, ()))
    run_case = run_gradient_case if gradient else run_pondering_case if function in NAMED else run_value_case

    def run(trial: Trial) -> None:
        for case in cases:
            wanted = {*case["spec"], *options_used(function, case["arrays"], case["arguments"])}
            if applies(case, function, trial.dtype) and all(map(trial.subject.offers, wanted)):
                run_case(trial, function, case)

    name = f"vectors {function} {requirement}"
    if function in NAMED:
        check(requirement, "vectors", *needs, dtypes=FLOATS, level="module", name=name)(run)
        return
    check(requirement, "vectors", *needs, dtypes=ANY_DTYPE, name=name)(run)
    # In a second dtype they say little more than the laws do, and compilers take long over so many shapes.
    check(requirement, "vectors", *needs, dtypes=("float32",), level="full", name=f"{name} in float32")(run)
    if any(applies(case, function, LOW_PRECISION[0]) for case in cases):
        check(requirement, "vectors", *needs, dtypes=LOW_PRECISION, level="full", name=f"{name} in low precision")(run)


def register_all() -> None:
    """One check for each function and each requirement its cases cite first (gradients: last)."""
    for function, cases in spec_data.vectors().items():
        by_requirement: dict[str, list[dict]] = {}
        for case in cases:
            cited = case["spec"][-1] if function.startswith("grad_") else case["spec"][0]
            by_requirement.setdefault(cited, []).append(case)
        for requirement, some in sorted(by_requirement.items()):
            _register(requirement, function, some)
