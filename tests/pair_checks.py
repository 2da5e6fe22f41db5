"""Checks of a backend's Transformer of pairs, shared by the tests of both backends."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from masks import unpack_bits
from nets import make_net, make_trainer
from train_pairs import EXAMPLES, IMAGES, MAX_STEPS, MODEL, ROWS, XL, make_inputs

import ponder_ref
from ponder_ref.models._attention import dropped_share, with_masks
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.runtime.settings import Halting, Optimiser

WAYS: dict[str, dict[str, Any]] = {
    "ponder": {},
    "epsilon": {"epsilon": 0.3, "min_steps": 2},
    "act": {"method": "act", "act_epsilon": 0.3},
    "once": {"method": "once"},
}


def parameters(model: PairTransformer) -> dict[str, np.ndarray]:
    """Initial parameters moved a little, with halting logits that differ between steps and examples."""
    rng = np.random.default_rng(0)
    params = {name: x + 0.2 * rng.normal(size=x.shape) for name, x in model.initial_parameters(2).items()}
    return {**params, "halt.w": params["halt.w"] * 5, "halt.b": params["halt.b"] + 0.2}


def alone(model: PairTransformer, params: dict, inputs: dict, i: int, options: dict) -> Any:
    """Example i by the reference, one step after another."""
    given = {name: x[i : i + 1] for name, x in inputs.items() if not name.startswith("dropout")}
    bits = {name: x[:, i : i + 1] for name, x in inputs.items() if name.startswith("dropout")}
    xl = model.memory == "xl"
    encoder = unpack_bits(bits["dropout.encoder"], 2 * ROWS if xl else ROWS)
    decoder = unpack_bits(bits["dropout.decoder"], ROWS + 3)
    tokens = ponder_ref.pairs_query(params, given["images"], given["query"])
    rule = {"heads": model.heads, "dropout": dropped_share(model)}

    def step(state):
        n, h = int(state["n"]) + 1, state["h"]
        earlier = state["earlier"] if xl and n > 1 else None
        kept = encoder[n - 1] if earlier is not None or not xl else encoder[n - 1][..., -ROWS:]
        new = ponder_ref.pairs_transition(params, h, n, earlier=earlier, kept=kept, **rule)
        decoded = ponder_ref.pairs_decode(params, new, tokens, n, kept=decoder[n - 1], **rule)
        y_hat, z = ponder_ref.pairs_readout(params, decoded)
        return y_hat, {"h": new, "earlier": h, "tokens": decoded, "n": np.array(n)}, z

    h = ponder_ref.pairs_encode(params, given["images"], given["rows"])
    start = {"h": h, "earlier": np.zeros_like(h), "tokens": np.zeros_like(tokens), "n": np.array(0)}
    return ponder_ref.ponder(step, None, start, max_steps=MAX_STEPS, **options)


def check_against_the_reference(
    backend: Any, way: str, model: PairTransformer = MODEL, given: dict[str, np.ndarray] | None = None
) -> None:
    """Predictions, logits, Nᵢ and tokens of a batch with dropout, in float32, each example alone."""
    options = WAYS[way]
    params, inputs = parameters(model), with_masks(model, given or make_inputs(3), 5, 0, MAX_STEPS)
    inputs["images"] = inputs["images"].astype(np.float32)
    given = {name: backend.from_numpy(x, x.dtype.name) for name, x in inputs.items()}
    out = make_net(f"ponder_{backend.NAME}", model, params, max_steps=MAX_STEPS, **options)(given)
    y_hat, z, lengths, state = (backend.to_numpy(x) for x in (out.y_hat, out.halt_logits, out.lengths, out.state))
    for i in range(EXAMPLES):
        want = alone(model, params, inputs, i, options)
        n = int(want.lengths[0])
        assert lengths[i] == n, i
        np.testing.assert_allclose(y_hat[:n, i], want.y_hat[:n, 0], atol=5e-5)
        np.testing.assert_allclose(z[:n, i], want.halt_logits[:n, 0], atol=5e-5)
        np.testing.assert_allclose(state[i], want.state["tokens"][0], atol=5e-5)
    assert len(set(lengths.tolist())) > 1 or way not in ("epsilon", "act"), "no example of this test leaves early"


def far_inputs() -> dict[str, np.ndarray]:
    """300 slots, of which most are NaN and named by nobody; rows name the first ones as bytes, queries the last."""
    inputs, slots = make_inputs(3), 300
    images = np.full((EXAMPLES, slots, MODEL.width), np.nan)
    images[:, :IMAGES] = inputs["images"]
    images[:, -IMAGES:] = inputs["images"]
    used = np.concatenate([inputs["rows"].reshape(EXAMPLES, -1), inputs["query"] + slots - IMAGES], 1)
    unused = (used[..., None] != np.arange(slots)).all(1)
    images[unused] = np.nan
    return {
        "images": images,
        "rows": inputs["rows"].astype(np.uint8),
        "query": (inputs["query"] + slots - IMAGES).astype(np.int32),
    }


def check_slots(backend: Any) -> None:
    """Slots of any integer dtype are told apart; those that nobody names reach neither values nor gradients."""
    inputs = far_inputs()
    check_against_the_reference(backend, "ponder", given=inputs)
    pairs = import_module(f"ponder_{backend.NAME}.models.pairs")
    params = {name: x for name, x in parameters(MODEL).items() if name.startswith("embed.")}
    given = {name: backend.from_numpy(x, "float32" if name == "images" else x.dtype.name) for name, x in inputs.items()}

    def total(*values: Any) -> Any:
        h, tokens = pairs.begin(dict(zip(params, values, strict=True)), **given)
        return (h * h).sum() + (tokens * tokens).sum()

    _, grads = backend.value_and_grad(total, *(backend.from_numpy(x, "float32") for x in params.values()))
    for name, grad in zip(params, grads, strict=True):
        assert np.isfinite(backend.to_numpy(grad)).all(), name


def check_refusals(package: str) -> None:
    """Inputs that do not fit get a sentence that names them, and so does a method that this model lacks."""
    trainer = make_trainer(package, MODEL, Halting(max_steps=MAX_STEPS), Optimiser())
    state, good = trainer.init(MODEL.initial_parameters(0)), make_inputs(0)
    masked = with_masks(MODEL, good, 0, 0, MAX_STEPS)
    short = with_masks(MODEL, good, 0, 0, MAX_STEPS - 1)
    for inputs, named in (
        ({"images": good["images"]}, "rows"),
        ({**good, "images": good["images"][..., :3]}, "images"),
        ({**good, "rows": good["rows"][..., :1]}, "rows"),
        ({**good, "query": good["query"].astype(np.float32)}, "query"),
        ({**good, "targets": good["query"]}, "targets"),
        ({**good, "rows": good["rows"][:, :1]}, "rows must have 2 pairs or more"),
        (short, "dropout.encoder"),
        ({**masked, "dropout.decoder": masked["dropout.decoder"].astype(np.int32)}, "dropout.decoder .* uint8"),
    ):
        with pytest.raises(ValueError, match=named):
            trainer.unroll(state, inputs)
    with pytest.raises(ValueError, match="method must be one of"):
        make_trainer(package, XL, Halting(method="ut-act"), Optimiser())
