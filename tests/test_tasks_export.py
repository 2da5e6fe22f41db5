"""Runs exported to ONNX: their answers in onnxruntime, the exit of the loop, and the command that writes them."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import export_checks as checks
import onnx
from attack_runs import babi_run
from export_checks import CONFIG, EXITS, MODEL, SEED, export, inputs, onnx_runner, onnx_session, parameters
from task_helpers import refused

import ponder_ref
from ponder_ref.exits import POLICIES
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime.values import Choice
from tasks.export import onnx_file
from tasks.export.graph import Graph, info
from tasks.export.policy import Exit
from tasks.parity import Parity


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checks.make_run(tmp_path_factory.mktemp("export") / "run")


@pytest.mark.parametrize("exit", EXITS.values(), ids=EXITS)
def test_answers_are_those_of_the_unroll(exit: Exit, folder: Path, tmp_path: Path):
    done = export(folder, "--format", "onnx", "--out", tmp_path / "made" / "run.onnx", *checks.flags(exit))
    assert done.returncode == 0, done.stderr
    run = onnx_runner(tmp_path / "made" / "run.onnx")
    checks.check_answers(run, exit)
    if exit.policy == "fixed":
        assert run(inputs(1, -3.0), np.arange(1))[2] == exit.max_steps
    else:
        checks.check_iterations(run, exit)


@pytest.mark.parametrize(
    "exit",
    [
        Exit("expected", 4, epsilon=0.05, remainder="last"),
        Exit("expected", 4, epsilon=0.05, remainder="normalize"),
        Exit("expected", 30, remainder="normalize"),
        Exit("quantile", 1, q=1.0),
    ],
    ids=str,
)
def test_mass_left_at_the_last_step(exit: Exit):
    """N so small that mass is left, no ε, N beyond training's, N of one step: the cuts of H2 and H3."""
    x, ids = inputs(50), np.arange(50)
    y_hat, steps, iterations = onnx_runner(onnx_file.write(MODEL, parameters(), exit, {}))(x, ids)
    right = checks.right_answers(*checks.unroll(parameters(), x, exit.max_steps), ids, exit)
    np.testing.assert_array_equal(steps, right.steps)
    np.testing.assert_allclose(y_hat, right.y_hat, rtol=1e-5, atol=2e-5)
    assert iterations == exit.max_steps


def test_chances_that_underflow_are_still_a_distribution():
    params = parameters()
    params["halt.b"] = params["halt.b"] - 1000  # λ about exp(−1000): its logarithm is a number, it is not
    exit = Exit("expected", 5, epsilon=0.05, remainder="normalize")
    x, ids = inputs(20), np.arange(20)
    y_hat, _, _ = onnx_runner(onnx_file.write(MODEL, params, exit, {}))(x, ids)
    right = checks.right_answers(*checks.unroll(params, x, 5), ids, exit)
    np.testing.assert_allclose(y_hat, right.y_hat, rtol=1e-3, atol=1e-3)


def test_uniforms_are_those_of_the_standard():
    """Bit for bit, with words that overflow and ids of 64 bits."""
    g = Graph()
    g.rename(onnx_file.uniforms(g, onnx_file.key_schedule(g, "seed"), "ids", "steps"), "u")
    declared = [info("seed", "uint64", ()), info("ids", "int64", ("batch",)), info("steps", "int64", ("steps", 1))]
    graph = onnx.helper.make_graph(
        g.nodes, "u", declared, [info("u", "float32", ("steps", "batch"))], list(g.constants.values())
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    session = onnx_session(model.SerializeToString())
    ids = np.concatenate([np.arange(-300, 300), [2**31, 2**32 - 1, 2**40 + 3, -(2**62)]])
    for seed in (0, 1, SEED, 2**64 - 1):
        given = {"seed": np.array(seed, np.uint64), "ids": ids, "steps": np.arange(1, 41)[:, None]}
        wanted = ponder_ref.halting_uniforms(seed, ids, max_steps=40)
        np.testing.assert_array_equal(session.run(None, given)[0], wanted)


def test_sampling_goes_on_beyond_a_block_of_uniforms():
    params = parameters()
    params["halt.w"][0], params["halt.b"][0] = 0.3, -3.0  # λ about 0.05, whatever the input
    exit = Exit("sample", 2 * onnx_file.BLOCK + 8)
    x, ids = inputs(200), np.arange(200)
    _, steps, iterations = onnx_runner(onnx_file.write(MODEL, params, exit, {}))(x, ids)
    right = checks.right_answers(*checks.unroll(params, x, exit.max_steps), ids, exit)
    assert right.margin > checks.MARGIN
    np.testing.assert_array_equal(steps, right.steps)
    assert ((steps > onnx_file.BLOCK) & (steps < exit.max_steps)).sum() > 40 and iterations == exit.max_steps


def test_several_outputs():
    model = Rnn(inputs=checks.BITS, hidden=checks.HIDDEN, outputs=3, output="classes")
    x, ids = inputs(40), np.arange(40)
    for exit in (EXITS["sample"], EXITS["expected"]):
        y_hat, steps, _ = onnx_runner(onnx_file.write(model, parameters(model), exit, {}))(x, ids)
        right = checks.right_answers(*checks.unroll(parameters(model), x, exit.max_steps), ids, exit)
        np.testing.assert_array_equal(steps, right.steps)
        np.testing.assert_allclose(y_hat, right.y_hat, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("exit", EXITS.values(), ids=EXITS)
def test_a_nan_harms_its_own_row_alone(exit: Exit):
    run = onnx_runner(onnx_file.write(MODEL, parameters(), exit, {}))
    x, ids = inputs(8), np.arange(8)
    before = run(x, ids)
    x[3] = np.nan
    after = run(x, ids)
    others = ids != 3
    np.testing.assert_array_equal(after[0][others], before[0][others])
    np.testing.assert_array_equal(after[1][others], before[1][others])
    assert np.isnan(after[0][3]) and after[1][3] == exit.max_steps


def test_the_file_says_what_it_is(folder: Path, tmp_path: Path):
    file = tmp_path / "run.onnx"
    for _ in range(2):  # the second time it is replaced
        done = export(folder, "--format", "onnx", "--out", file, "--policy", "quantile", "--q", "0.9")
        assert done.returncode == 0 and str(file) in done.stdout
    beside = json.loads((tmp_path / "run.onnx.json").read_text(encoding="utf-8"))
    assert beside.pop("sha256") == hashlib.sha256(file.read_bytes()).hexdigest()
    session = onnx_session(file)
    assert json.loads(session.get_modelmeta().custom_metadata_map["pondernet"]) == beside
    assert beside["policy"] == {"name": "quantile", "max_steps": checks.STEPS, "q": 0.9}
    assert beside["update"] == 7 and beside["spec"] == ponder_ref.SPEC_VERSION
    model = onnx.load(file)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", beside["opset"])]
    for ports, found in ((beside["inputs"], session.get_inputs()), (beside["outputs"], session.get_outputs())):
        assert [(each["name"], each["shape"]) for each in ports] == [(each.name, each.shape) for each in found]
        kinds = {"float32": "tensor(float)", "int64": "tensor(int64)"}
        assert [kinds[each["dtype"]] for each in ports] == [each.type for each in found]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.onnx", "run.onnx.json"]


def test_the_example_of_the_docs_runs(tmp_path: Path):
    checks.run_example("onnx", tmp_path)


def test_runs_that_do_not_halt_have_a_fixed_number_of_steps(tmp_path: Path):
    config = dataclasses.replace(CONFIG, method="once")
    folder = checks.make_run(tmp_path / "once", config=config)
    assert export(folder, "--format", "onnx", "--out", tmp_path / "once.onnx").returncode == 0
    checks.check_answers(onnx_runner(tmp_path / "once.onnx"), Exit("fixed", 1))
    done = export(folder, "--format", "onnx", "--out", tmp_path / "no.onnx", "--policy", "sample")
    assert "--policy sample needs a run of --method ponder" in refused(done)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--format", "tflite"], "--format must be one of onnx, stablehlo, got 'tflite'"),
        (["--policy", "mean"], "--policy must be one of sample, quantile, fixed, expected, got 'mean'"),
        (["--policy", "quantile", "--q", "0"], "--q must be a number in (0, 1], got 0.0"),
        (["--q", "0.5"], "--q goes with --policy quantile"),
        (["--epsilon", "0.5"], "--epsilon goes with --policy expected"),
        (["--max-steps", "65536"], "--max-steps must be an integer in 1..65535, got 65536"),
        (["--checkpoint", "none"], "there is no checkpoint none"),
        (["--steps", "3"], "unknown argument '--steps'"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, list) else "",
)
def test_wrong_flags_get_one_sentence(arguments: list[str], sentence: str, folder: Path, tmp_path: Path):
    done = export(folder, "--format", "onnx", "--out", tmp_path / "no.onnx", *arguments)
    assert sentence in refused(done)
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_the_exporter_does_not_know_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One that `predict` has and the format does not: it must not be written as another under its name."""
    monkeypatch.setattr("tasks.export.policy.POLICIES", (*POLICIES, "newest"))
    monkeypatch.setattr("tasks.export.__main__.POLICY", Choice((*POLICIES, "newest")))
    done = export(folder, "--format", "onnx", "--out", tmp_path / "no.onnx", "--policy", "newest")
    wanted = "--policy newest cannot be exported to onnx; what can be is sample, quantile, fixed, expected"
    assert refused(done) == wanted
    assert list(tmp_path.iterdir()) == [] and set(onnx_file.POLICIES) <= set(POLICIES)


def test_wrong_runs_get_one_sentence(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def sentence(run: Path, out: Path = tmp_path / "no.onnx") -> str:
        return refused(export(run, "--format", "onnx", "--out", out))

    assert sentence(tmp_path / "none") == f"there is no run folder {tmp_path / 'none'}"
    assert sentence(folder, tmp_path) == f"--out {tmp_path} is a folder, not a file"
    assert "config.json is a file, not a folder" in sentence(folder, folder / "config.json" / "no.onnx")
    act = checks.make_run(tmp_path / "act", config=dataclasses.replace(CONFIG, method="act"))
    assert "is a run of --method act" in sentence(act)
    other = checks.make_run(tmp_path / "other", network=Parity(dataclasses.replace(CONFIG, hidden=17)).network())
    assert "does not fit the run's model" in sentence(other)
    assert "has a network of the kind 'transformer'; what can be exported is rnn" in sentence(
        babi_run(tmp_path / "babi")
    )
    (other / "config.json").write_text('{"task": []}')
    assert "config.json: task: expected str, got array" in sentence(other)
    monkeypatch.setattr("tasks.export.__main__.find_spec", lambda name: None)
    assert "--format onnx needs 'onnx', which is not installed" in sentence(folder)
