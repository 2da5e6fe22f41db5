"""Shapes that are easy to forget, each option at them, and dtypes that meet (spec B3, and each function's own)."""

from ponder_ref.conformance.cases import Enumerated
from ponder_ref.conformance.check_laws import SPEAKS_FOR
from ponder_ref.conformance.compare import LOW_PRECISION, Violation
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.oracle import assert_agrees, check_dtypes, expected, run_and_compare
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check
from ponder_ref.conformance.subject import PRIORS, result_dtype, round_to

# Steps and batch, and the numbers of `Enumerated` used there: between them every option meets every kind of shape.
ODD_SHAPES = (((1, ()), (0, 3)), ((6, ()), (2, 1)), ((3, (1, 2)), (2, 1)), ((3, (2, 1, 2)), (2, 1)))
WITHOUT_BATCH = ("threefry2x32", "schedule", "adam_update", "orthogonalize", "muon_update", "clip_by_global_norm")
MIXED = ("expected_loss", "kl_divergence", "expected_prediction", "weighted_mean", "ponder_loss", "act_output")


def named(function: str, arrays: dict, arguments: dict) -> str:
    """The requirement a value answers for; that of log_halting depends on its options."""
    if function != "log_halting":
        return SPEAKS_FOR[function]
    return "H4" if "lengths" in arrays else {"last": "H1", "normalize": "H3"}[arguments["remainder"]]


def _register_values(function: str) -> None:
    @check(SPEAKS_FOR.get(function, "H1"), "laws", function, dtypes=ANY_DTYPE, name=f"{function} at odd shapes")
    def run(trial: Trial) -> None:
        rng = trial.rng()
        for shape, numbers in ODD_SHAPES:
            for number in numbers * (2 if shape[1] else 6):  # a single example says little
                arrays, arguments = MAKERS[function](Enumerated(trial, *shape, number, rng))
                requirement = named(function, arrays, arguments)
                run_and_compare(trial.subject, requirement, function, arrays, arguments, trial.dtype)


for _function in MAKERS:
    if _function not in (*WITHOUT_BATCH, *PRIORS):
        _register_values(_function)


@check("B3", "signatures")
def results_have_the_shapes_and_dtypes_of_their_arguments(trial: Trial) -> None:
    """For every function and batches of no, two and three axes; what the values should be, other checks say."""
    exact = trial.dtype == trial.subject.most_exact()
    for function, make in MAKERS.items():
        if not trial.subject.offers(function):
            continue
        shapes = ODD_SHAPES if exact and function not in (*WITHOUT_BATCH, *PRIORS) else ODD_SHAPES[1:2]
        for shape, (number, *_) in shapes:
            arrays, arguments = make(Enumerated(trial, *shape, number))
            got = trial.subject.call(function, arrays, arguments, trial.dtype)
            check_dtypes(function, got, trial.dtype)
            loose = {"dtype": "float64"} if function in PRIORS else {}
            for field, want in expected(function, arrays, {**arguments, **loose}).items():
                if got[field].shape != want.shape:
                    sentence = f"{function}: {field} has shape {got[field].shape}, should be {want.shape}"
                    raise Violation("B3", f"{sentence}; arguments: { {k: v.shape for k, v in arrays.items()} }")


@check("B3", "signatures", dtypes=ALL_DTYPES)
def the_wider_dtype_wins(trial: Trial) -> None:
    """One argument in float32 beside others in float64: all digits of float64; beside half precision: float32."""
    subject = trial.subject
    if trial.dtype == "float32" or "float32" not in subject.dtypes:
        return
    for function in MIXED[:2] if trial.dtype in LOW_PRECISION else MIXED:
        if not subject.offers(function):
            continue
        number = 0 if function == "weighted_mean" else 3  # with weights that are floats
        arrays, arguments = MAKERS[function](Enumerated(trial, 6, (3,), number))
        for other in (name for name, array in arrays.items() if array.dtype.kind == "f"):
            dtypes = {name: "float32" if name == other else trial.dtype for name in arrays}
            rounded = {name: round_to(dtypes[name], array) for name, array in arrays.items()}
            given = {name: subject.array(name, array, dtypes[name]) for name, array in rounded.items()}
            got = subject.fields(function, getattr(subject.backend, function)(**given, **arguments))
            assert_agrees("B3", function, rounded, arguments, got, result_dtype(trial.dtype))
