"""Golden vectors: one check a requirement and dtype, over all the cases that cite it first."""

import numpy as np

from ponder_ref import spec_data
from ponder_ref.conformance.compare import LOW_PRECISION, assert_close
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import assert_agrees
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.subject import options_used


def applies(case: dict, function: str, dtype: str) -> bool:
    """A case runs in float64 and float32 unless it says otherwise, and in half precision where it says so."""
    if dtype in LOW_PRECISION:
        return case.get("half", False) and not function.startswith("grad_")
    return dtype in case.get("dtypes", ("float64", "float32"))


def run_value_case(trial: Trial, function: str, case: dict) -> None:
    arrays, arguments = case["arrays"], case["arguments"]
    got = trial.subject.call(function, arrays, arguments, trial.dtype)
    want = case["expected"]
    requirement = case["spec"][0]
    assert_agrees(requirement, function, arrays, arguments, got, trial.dtype, want=want, ties=False)


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
    needs = (*OBJECTIVES[function].needs, "value_and_grad") if gradient else (function,)

    def run(trial: Trial) -> None:
        for case in cases:
            wanted = {*case["spec"], *options_used(function, case["arrays"], case["arguments"])}
            if applies(case, function, trial.dtype) and all(map(trial.subject.offers, wanted)):
                (run_gradient_case if gradient else run_value_case)(trial, function, case)

    name = f"vectors {function} {requirement}"
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
