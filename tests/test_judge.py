"""The judge itself: what it says of a backend, and what its command line promises."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import ponder_ref
from ponder_ref.conformance.interface import ANNEX, ANNEX_REQUIREMENTS
from ponder_ref.conformance.mutants.__main__ import DEFECTS, rejected_by
from ponder_ref.conformance.mutants.base import Mutant, backend
from ponder_ref.conformance.mutants.options import from_numpy
from ponder_ref.conformance.report import conclusion
from ponder_ref.conformance.run import judge
from ponder_ref.conformance.spec_data import requirements


def run(*arguments, cwd=None, **environment):
    command = [sys.executable, "-m", "ponder_ref.conformance", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment})


def test_the_complaint_says_what_was_got_and_what_it_should_have_been():
    kl = next(mutant for mutant in DEFECTS if mutant.name == "kl-reversed")
    sentence = rejected_by(kl)["L2"]
    assert (
        "kl_divergence[float64]" in sentence and "got" in sentence and "should be" in sentence and "log_p=" in sentence
    )


def test_a_declared_gap_is_not_a_failure_and_an_undeclared_one_is():
    gap = {"expected_steps": None, "NOT_OFFERED": ("compiled", "vmapped", "expected_steps")}
    declared = judge(backend(Mutant("gap", "", "H7", gap)), examples=2, only={"B1", "H7"})
    assert declared["H7"].status == "not offered" and declared["B1"].status == "passed"
    silent = judge(backend(Mutant("gap", "", "B1", {"expected_steps": None})), examples=2, only={"B1"})
    assert silent["B1"].status == "failed"


def test_what_must_be_offered_cannot_be_declared_away():
    verdicts = judge(backend(Mutant("gap", "", "B1", {"NOT_OFFERED": ("ponder_loss",)})), examples=2, only={"B1"})
    assert verdicts["B1"].status == "failed"


@pytest.mark.parametrize(
    "replaced", [{"DTYPES": ()}, {"DTYPES": None}, {"NOT_OFFERED": ("compiled", "vmapped", "L2")}], ids=repr
)
def test_nobody_conforms_by_offering_nothing(replaced):
    verdicts = judge(backend(Mutant("empty", "", "B1", replaced)), examples=2, only={"B1"})
    assert verdicts["B1"].status == "failed"


def test_a_part_of_the_checks_is_not_a_verdict(tmp_path):
    report = tmp_path / "report.json"
    result = run("--backend", "ponder_ref", "--only", "H7,L2", "--examples", "2", "--report", str(report))
    assert result.returncode == 0 and "2 of H7, L2 passed" in result.stdout and "conforms" not in result.stdout
    assert json.loads(report.read_text(encoding="utf-8"))["conforms"] is None


def test_the_reference_conforms_and_the_report_says_so(tmp_path):
    report = tmp_path / "report.json"
    result = run("--backend", "ponder_ref", "--examples", "5", "--report", str(report))
    assert result.returncode == 0, result.stdout
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["conforms"] and content["counts"]["failed"] == 0
    judged = [requirement for requirement in requirements() if requirement not in ANNEX_REQUIREMENTS]
    assert [row["id"] for row in content["requirements"]] == judged
    assert re.findall(r"^  ([A-Z]\d+) ", result.stdout, flags=re.M) == judged


def test_the_annex_is_judged_on_request_alone(tmp_path):
    """A new backend neither offers it nor lists it; where it is asked for, it is held to it."""
    without = backend(Mutant("no annex", "", "", dict.fromkeys(ANNEX)))
    core = judge(without, examples=2, only={"B1", "B2", "B4", "B7"})
    assert not ANNEX_REQUIREMENTS & core.keys() and {"failed"} & {v.status for v in core.values()} == set()
    asked = judge(without, examples=2, only={"B1"}, annex=True)
    assert asked["B1"].status == "failed" and "of the annex" in asked["B1"].failures[0]
    wrong = backend(next(mutant for mutant in DEFECTS if mutant.name == "adam-uncorrected"))
    assert judge(wrong, examples=2)["B1"].status == "passed"
    assert judge(wrong, examples=2, only={"O1"})["O1"].status == "failed"


def test_the_verdict_says_whether_the_annex_was_judged(tmp_path):
    report = tmp_path / "report.json"
    flags = ("--backend", "ponder_ref", "--examples", "2", "--report", str(report))
    plain = run(*flags)
    assert plain.stdout.count("--annex") == 1 and not json.loads(report.read_text())["options"]["annex"]
    whole = run(*flags, "--annex")
    assert whole.returncode == 0 and "--annex" not in whole.stdout
    rows = {row["id"]: row["status"] for row in json.loads(report.read_text())["requirements"]}
    assert list(rows) == list(requirements()) and rows["O1"] == "passed" and rows["M8"] == "not tried"
    by_name = run("--backend", "ponder_ref", "--examples", "2", "--level", "module", "--only", "O1,M8")
    assert by_name.returncode == 0 and "2 of O1, M8 passed" in by_name.stdout


HALF = """
import ponder_ref as _r
from ponder_ref.conformance.mutants.base import Mutant, backend
from ponder_ref.conformance.mutants.options import from_numpy
held = backend(Mutant("half", "", "", {"from_numpy": from_numpy}, ("bfloat16",)))
"""


def test_the_verdict_says_what_was_not_tried_for_want_of_a_dtype(tmp_path):
    (tmp_path / "half_backend.py").write_text(HALF)
    report = tmp_path / "report.json"
    result = run("--backend", "half_backend:held", "--examples", "2", "--report", str(report), cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    last = result.stdout.strip().splitlines()[-1]
    assert "conforms, 3 requirements not tried: A2, B5, B6 (they need float64 or float32): " in last
    assert "a NaN stays in its example (needs float64 or float32)" in result.stdout
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["conforms"] and content["not_tried_for_want_of_dtypes"] == ["A2", "B5", "B6"]
    rows = {row["id"]: row for row in content["requirements"]}
    assert rows["B6"]["status"] == "not tried" and rows["B6"]["needs_one_of"] == ["float64", "float32"]
    assert rows["B9"]["status"] == "not tried" and rows["B9"]["needs_one_of"] == []  # of another level


def test_a_dtype_that_is_left_out_on_the_command_line_is_named_too():
    missing = {"DTYPES": ("float64", "bfloat16"), "from_numpy": from_numpy}
    verdicts = judge(backend(Mutant("two", "", "", missing)), dtypes=("bfloat16",), examples=2)
    assert "(they need float64 or float32)" in conclusion(verdicts)
    whole = judge(backend(Mutant("two", "", "", missing)), examples=2)
    assert conclusion(whole) == "conforms"


WRONG = """
import ponder_ref as _r
from ponder_ref import *
NAME, DTYPES, NOT_OFFERED = "wrong", ("float64",), ("compiled", "vmapped")
def expected_steps(log_p):
    return _r.expected_steps(log_p) + 1
"""


def test_a_backend_that_does_not_conform_gives_exit_code_1_and_a_short_input(tmp_path):
    (tmp_path / "wrong_backend.py").write_text(WRONG)
    result = run("--backend", "wrong_backend", "--examples", "5", cwd=tmp_path)
    assert result.returncode == 1
    assert "H7   failed" in result.stdout and "should be" in result.stdout and "does not conform" in result.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no backend 'broken_backend'"),
        ("import a_module_that_is_not_there", "needs 'a_module_that_is_not_there', which is not installed"),
        ("raise RuntimeError('no device')", "could not be imported: RuntimeError: no device"),
        ("x = (", "could not be imported: SyntaxError"),
        ("import sys; sys.exit('no')", "could not be imported: SystemExit: no"),
        ("NOT_OFFERED = 5", "NOT_OFFERED must be a tuple of names, got 5"),
        ("ENVIRONMENT = None", "ENVIRONMENT must be a dict, got None"),
    ],
)
def test_what_cannot_be_run_gives_exit_code_2_and_one_sentence(tmp_path, content, said):
    if content is not None:
        (tmp_path / "broken_backend.py").write_text(content)
    result = run("--backend", "broken_backend", cwd=tmp_path)
    assert result.returncode == 2 and said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1 and result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "ponder_ref", "--examples", "0"],
        ["--backend", "ponder_ref", "--seed", "-1"],
        ["--backend", "ponder_ref", "--dtypes", "float8"],
        ["--backend", "ponder_ref", "--report", "no/such/folder/report.json"],
        ["--backend", "ponder_ref", "--level", "most"],
        ["--backend", "ponder_ref", "--only", "L2,X9"],
        ["--backend", "ponder_ref", "--only", ", "],
        ["--backend", "ponder_ref", "--dtypes", ""],
        ["--backend", "ponder_ref", "--report", "."],
        ["--backend", "ponder_ref:nothing"],
        ["--new", "not-a-name.py"],
        [],
    ],
)
def test_bad_options_give_exit_code_2(tmp_path, arguments):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.strip()
    assert "Traceback" not in result.stderr


def test_chosen_dtypes_have_the_environment_they_ask_for(tmp_path):
    """One that does not conform without it."""
    needs = WRONG.replace(
        "return _r.expected_steps(log_p) + 1", "return _r.expected_steps(log_p) + ('WIDE' not in os.environ)"
    )
    needs = "import os\nENVIRONMENT = {'float64': {'WIDE': '1'}}\n" + needs
    (tmp_path / "needing_backend.py").write_text(needs)
    result = run("--backend", "needing_backend", "--only", "H7", "--dtypes", "float64", "--examples", "5", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_attribute_of_a_module_can_be_judged(tmp_path):
    (tmp_path / "holder.py").write_text("import ponder_ref\nbackend = ponder_ref\n")
    assert run("--backend", "holder:backend", "--examples", "2", cwd=tmp_path).returncode == 0


def test_the_advice_of_a_new_skeleton_can_be_followed(tmp_path):
    (tmp_path / "inner").mkdir()
    advice = run("--new", "inner/mine.py", cwd=tmp_path).stdout
    followed = run(*advice.split("python -m ponder_ref.conformance ")[1].split(), cwd=tmp_path)
    assert followed.returncode == 1 and "B1   failed" in followed.stdout


def test_a_file_can_be_judged_from_elsewhere_beside_what_it_imports(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "neighbour.py").write_text("from ponder_ref import *\nimport ponder_ref\n")
    (tmp_path / "inner" / "mine.py").write_text("from neighbour import *\nfrom neighbour import ponder_ref\n")
    assert run("--backend", "./inner/mine.py", "--only", "B1,H7", "--examples", "2", cwd=tmp_path).returncode == 0
    assert run("--backend", "inner/mine.py:ponder_ref", "--only", "H7", "--examples", "2", cwd=tmp_path).returncode == 0
    missing = run("--backend", "mine.py", cwd=tmp_path)
    assert missing.returncode == 2 and "no backend 'mine.py': there is no such file" in missing.stderr


def test_lists_may_have_blanks_other_case_and_stray_commas():
    result = run("--backend", "ponder_ref", "--only", " l2, H7,", "--dtypes", "float64,", "--examples", "2")
    assert result.returncode == 0 and "2 of L2, H7 passed" in result.stdout


def test_a_terminal_that_has_ascii_alone_is_no_failure():
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = run("--backend", "ponder_ref", "--only", "H1,H2,P1,L1", "--examples", "2", **plain)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr


def in_example_one(log_p, step_losses):
    loss = ponder_ref.expected_loss(log_p, step_losses)
    return loss + 0 * np.max(step_losses)


def refused(log_p):
    raise RuntimeError("no memory")


@pytest.mark.parametrize(
    ("name", "function", "requirement", "said"),
    [
        ("expected_loss", in_example_one, "B6", "expected_loss[float64].result: nan in the arrays of example (1,)"),
        ("expected_steps", refused, "B7", "expected_steps[float64] raised RuntimeError: no memory; inputs: log_p="),
    ],
)
def test_complaints_name_the_function_and_can_be_read(name, function, requirement, said):
    verdicts = judge(backend(Mutant("odd", "", "", {name: function})), examples=2, only={requirement})
    (sentence,) = verdicts[requirement].failures
    assert said in sentence and "array(" not in sentence and "{" not in sentence


FILLED = {
    "log_halting": """
    checks.check_steps_first("halt_logits", halt_logits)
    checks.check_remainder(remainder)
    checks.check_lengths(lengths, halt_logits.shape[1:])
    size = len(halt_logits)
    n = np.arange(1, size + 1).reshape(-1, *[1] * (halt_logits.ndim - 1))
    lengths = size if lengths is None else lengths
    z = np.where(n < lengths if remainder == "last" else n <= lengths, halt_logits, 0)
    log_halt, log_stay = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    reached = np.zeros_like(z)
    reached[1:] = np.cumsum(log_stay, axis=0)[:-1]
    log_p = np.where((n == lengths) & (remainder == "last"), reached, log_halt + reached)
    log_p = np.where(n > lengths, -np.inf, log_p)
    if remainder == "normalize":
        log_p = np.where((log_p == -np.inf).all(axis=0) & (n <= lengths), 0, log_p)
        log_p = log_p - log_p.max(axis=0)
        log_p = np.where(n > lengths, -np.inf, log_p - np.log(np.exp(log_p).sum(axis=0)))
    return log_p
""",
    "expected_loss": """
    checks.check_steps_first("log_p", log_p)
    checks.check_like("step_losses", step_losses, log_p)
    return np.where(log_p == -np.inf, 0, np.exp(log_p) * step_losses).sum(axis=0)
""",
    "kl_divergence": """
    checks.check_steps_first("log_p", log_p)
    checks.check_log_prior(log_prior, log_p)
    log_prior = log_prior.reshape(*log_prior.shape, *[1] * (log_p.ndim - log_prior.ndim))
    term = np.where(log_prior == -np.inf, np.inf, np.exp(log_p) * (log_p - log_prior))
    return np.where(log_p == -np.inf, 0, term).sum(axis=0)
""",
    "weighted_mean": """
    checks.check_floating("values", values)
    checks.check_batch("values", values.shape)
    checks.check_weights(weights, values.shape)
    weights = np.ones(values.shape) if weights is None else np.asarray(weights, float)
    return np.where(weights == 0, 0, weights * values).sum() / weights.sum()
""",
    "ponder_loss": """
    checks.check_weights(weights, log_p.shape[1:])
    checks.check_scalar("beta", beta, "[0, inf)")
    live = np.ones(log_p.shape[1:], bool) if weights is None else weights != 0
    rec = np.where(live, expected_loss(log_p, step_losses), 0)
    reg = np.where(live, kl_divergence(log_p, log_prior), 0)
    loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
    return PonderLoss(loss_rec + beta * loss_reg, loss_rec, loss_reg, rec, reg)
""",
}


def test_a_skeleton_filled_in_with_numpy_conforms(tmp_path):
    assert run("--new", "my_backend.py", cwd=tmp_path).returncode == 0
    path = tmp_path / "my_backend.py"
    text = path.read_text(encoding="utf-8")
    unfilled = run("--backend", "my_backend.py", "--examples", "2", cwd=tmp_path)
    assert unfilled.returncode == 1 and "0 passed, 1 failed" in unfilled.stdout
    assert f"not written yet: {', '.join(FILLED)}, which" in " ".join(unfilled.stdout.split())
    for name, body in FILLED.items():
        start = text.index(f"def {name}(")
        hole = text.index("    raise NotImplementedError\n", start)
        text = text[:hole] + body.lstrip("\n") + text[hole + len("    raise NotImplementedError\n") :]
    path.write_text(
        text.replace("import numpy as np", "import numpy as np\n\nfrom ponder_ref import checks", 1), encoding="utf-8"
    )
    result = run("--backend", "my_backend", cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "conforms" in result.stdout and "not offered" in result.stdout
    again = run("--new", "my_backend.py", cwd=tmp_path)
    assert again.returncode == 2 and "exists already" in again.stderr
    assert path.read_text(encoding="utf-8").count("NotImplementedError") == 15
    assert not any(name in path.read_text(encoding="utf-8") for name in ANNEX)


def test_bfloat16_rounding_is_to_nearest_even():
    from ponder_ref.conformance.subject import round_to

    values = np.array([1.0, 1.00390625, 1.001953125, 1.005859375, -3.1415927, 1e4, np.inf, np.nan])
    want = [1.0, 1.0, 1.0, 1.0078125, -3.140625, 9984.0, np.inf, np.nan]
    np.testing.assert_array_equal(round_to("bfloat16", values), want)
