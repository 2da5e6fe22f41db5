"""A run of the torch backend, exported to ONNX, answers as the torch model does."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("safetensors")

import export_checks as checks
import torch

import ponder_torch


def test_onnx_answers_as_the_torch_model(tmp_path: Path):
    """A thousand inputs; a step may differ only where a uniform is within the standard's tolerance of λ."""
    folder = checks.make_run(tmp_path / "run")
    assert checks.export(folder, "--format", "onnx", "--out", tmp_path / "run.onnx").returncode == 0
    x, ids = checks.inputs(1000), np.arange(1000)
    y_hat, steps, iterations = checks.onnx_runner(tmp_path / "run.onnx")(x, ids)
    with torch.no_grad():
        out = ponder_torch.load(folder)(torch.from_numpy(x))
    all_y, lambdas = out.y_hat.numpy(), torch.sigmoid(out.halt_logits)
    uniforms = ponder_torch.halting_uniforms(checks.SEED, torch.from_numpy(ids), max_steps=len(lambdas))
    right = ponder_torch.sample_steps(lambdas, uniforms).numpy()
    near = ((lambdas - uniforms).abs() < checks.MARGIN).any(0).numpy()
    assert near.sum() < 10
    np.testing.assert_array_equal(steps[~near], right[~near])
    answers = np.take_along_axis(all_y, steps[None] - 1, axis=0)[0]
    np.testing.assert_allclose(y_hat, answers, rtol=1e-5, atol=1e-5)
    assert iterations == steps.max()
