"""The Transformer in torch: every example against the reference, padding, inputs that do not fit."""

import pytest

pytest.importorskip("torch")

from transformer_checks import (
    LAYERED,
    WAYS,
    check_against_the_reference,
    check_padding,
    check_refusals,
    check_rows_that_halt,
)

import ponder_torch


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_its_examples_alone(way: str):
    check_against_the_reference(ponder_torch, way)


def test_two_layers():
    check_against_the_reference(ponder_torch, "ponder", LAYERED)


def test_rows_halt_by_themselves():
    check_rows_that_halt(ponder_torch)


def test_padding_has_no_influence():
    check_padding("ponder_torch")


def test_inputs_that_do_not_fit_are_named():
    check_refusals("ponder_torch")


def test_the_gradient_is_that_of_small_differences():
    """The loss of a batch with dropout along a random direction, in float64."""
    import numpy as np
    import torch
    from nets import make_net, run_with
    from train_transformer import MAX_STEPS, MODEL, WAYS, make_chunk
    from transformer_checks import parameters

    rng, chunk = np.random.default_rng(0), make_chunk(0, 1)
    params = {name: torch.tensor(x) for name, x in parameters(MODEL).items()}
    way = {name: torch.tensor(rng.normal(size=tuple(x.shape))) for name, x in params.items()}
    for method in ("ponder-muon", "ponder-adam", "act-adam", "ut-act-adam"):
        halting = {"max_steps": MAX_STEPS, "lambda_p": 0.4, "beta": 0.05, "tau": 0.01, **WAYS[method][0]}
        net = make_net("ponder_torch", MODEL, parameters(MODEL), **halting)
        inputs = {name: torch.from_numpy(x[0]) for name, x in chunk.inputs.items()}
        targets, weights = torch.from_numpy(chunk.targets[0]), torch.from_numpy(chunk.weights[0])

        def loss(shift, net=net, inputs=inputs, targets=targets, weights=weights):
            out = run_with(ponder_torch, net, {name: x + shift * way[name] for name, x in params.items()}, inputs)
            return net.loss(out, targets, ponder_torch.cross_entropy, weights=weights).loss

        at = torch.zeros((), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(loss(at), at)
        near = 1e-6
        difference = (loss(torch.tensor(near)) - loss(torch.tensor(-near))) / (2 * near)
        assert float(slope) == pytest.approx(float(difference), rel=1e-6)
