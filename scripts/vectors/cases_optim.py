"""Golden cases of spec/annex/optim.md."""

from scripts.vectors.format import Book, floats


def _adam() -> Book:
    book = Book("adam_update", ["O1"], "app. B")
    add = book.add
    zero = floats([0.0, 0.0, 0.0])
    param, grad = floats([1.0, -2.0, 0.5]), floats([0.5, -0.25, 8.0])
    fresh = {"param": param, "grad": grad, "m": zero, "v": zero}
    add(
        "first",
        "t = 1 from zero moments: a step of lr against the sign of the gradient.",
        fresh,
        {"step": 1, "learning_rate": 0.125},
        param=[0.875, -1.875, 0.375],
    )
    used = {"param": param, "grad": grad, "m": floats([0.25, -0.5, 1.0]), "v": floats([0.0625, 0.5, 4.0])}
    add("moments", "t = 2 with moments.", used, {"step": 2, "learning_rate": 0.125})
    add(
        "late",
        "t = 1000: the bias correction of v is 1 - .999¹⁰⁰⁰ = .632.",
        used,
        {"step": 1000, "learning_rate": 0.001},
    )
    add("very-late", "t = 1000000: no correction is left.", used, {"step": 1000000, "learning_rate": 0.001})
    add(
        "decay",
        "Decoupled decay: lr·decay·θ, and none of it in the moments.",
        used,
        {"step": 3, "learning_rate": 0.125, "weight_decay": 0.5},
    )
    add(
        "eps-large",
        "eps = 1 stands outside the root, beside the corrected v.",
        used,
        {"step": 3, "learning_rate": 0.125, "eps": 1.0},
    )
    add(
        "betas",
        "β₁ = .5, β₂ = .75: everything can be done by hand.",
        used,
        {"step": 1, "learning_rate": 0.125, "beta1": 0.5, "beta2": 0.75},
        m=[0.375, -0.375, 4.5],
        v=[0.109375, 0.390625, 19],
    )
    add(
        "no-second-moment",
        "β₂ = 0: v is g² and needs no correction.",
        used,
        {"step": 1, "learning_rate": 0.125, "beta1": 0.5, "beta2": 0.0},
        param=[0.8125, -1.625, 0.359375],
        v=[0.25, 0.0625, 64],
    )
    nothing = {"param": param, "grad": zero, "m": zero, "v": zero}
    add(
        "zero-gradient",
        "Zero gradient and moments: nothing moves.",
        nothing,
        {"step": 1, "learning_rate": 0.125},
        param=[1, -2, 0.5],
    )
    add(
        "zero-gradient-decay",
        "Zero gradient with decay: θ·(1 - lr·decay).",
        nothing,
        {"step": 1, "learning_rate": 0.125, "weight_decay": 0.5},
        param=[0.9375, -1.875, 0.46875],
    )
    tiny = {
        "param": floats([[1.0, 1.0]]),
        "grad": floats([[2.0**-27, -(2.0**-40)]]),
        "m": floats([[0.0] * 2]),
        "v": floats([[0.0] * 2]),
    }
    add(
        "tiny-gradient",
        "Gradients beside and below eps = 1e-8: eps is not in the root.",
        tiny,
        {"step": 1, "learning_rate": 0.125},
    )
    scalar = {"param": floats(1.0), "grad": floats(-2.0), "m": floats(0.5), "v": floats(0.25)}
    add("scalar", "A parameter without axes.", scalar, {"step": 5, "learning_rate": 0.25})
    return book


SQUARE = floats([[2.0, 1.0], [0.5, -1.0]])
WIDE = floats([[1.0, -0.5, 2.0], [0.25, 1.5, -1.0]])
TALL = floats([[1.0, 0.25], [-0.5, 1.5], [2.0, -1.0]])


def _orthogonalize() -> Book:
    book = Book("orthogonalize", ["O2"], "beyond the paper")
    add = book.add
    # a + b + c = .701 is where a singular value of 1 goes in one step.
    for ns_steps in (1, 5):
        add(f"square-{ns_steps}", f"A square matrix, {ns_steps} steps.", {"matrix": SQUARE}, {"ns_steps": ns_steps})
        add(f"wide-{ns_steps}", f"More columns than rows, {ns_steps} steps.", {"matrix": WIDE}, {"ns_steps": ns_steps})
        add(
            f"tall-{ns_steps}",
            f"The transpose of wide-{ns_steps}: the transposed result.",
            {"matrix": TALL},
            {"ns_steps": ns_steps},
        )
    add("default-steps", "Without an argument: 5 steps.", {"matrix": SQUARE})
    add(
        "zero",
        "The zero matrix gives the zero matrix.",
        {"matrix": floats([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])},
        result=[0] * 6,
    )
    add(
        "one-by-one",
        "1 by 1, one step: a + b + c = .701 times the sign.",
        {"matrix": floats([[-4.0]])},
        {"ns_steps": 1},
        result=[-0.701],
    )
    add("one-by-one-five", "1 by 1, five steps.", {"matrix": floats([[4.0]])}, {"ns_steps": 5})
    add(
        "rank-one",
        "All ones: one singular value of 2, one of 0; one step gives .3505 everywhere.",
        {"matrix": floats([[1.0, 1.0], [1.0, 1.0]])},
        {"ns_steps": 1},
        result=[0.3505] * 4,
    )
    add("row-vector", "1 by 3.", {"matrix": floats([[3.0, 0.0, 4.0]])}, {"ns_steps": 1}, result=[0.4206, 0, 0.5608])
    add(
        "tiny",
        "‖G‖ = 5·2⁻²⁷ = 3.7e-8, where the 1e-8 of the norm shows.",
        {"matrix": floats([[3 * 2.0**-27, 0.0], [0.0, 4 * 2.0**-27]])},
        {"ns_steps": 5},
    )
    add("diagonal", "A diagonal matrix stays diagonal.", {"matrix": floats([[4.0, 0.0], [0.0, -0.5]])}, {"ns_steps": 5})
    return book


def _muon() -> Book:
    book = Book("muon_update", ["O3"], "beyond the paper")
    add = book.add

    def matrices(grad: object, param: object, m: object) -> dict[str, object]:
        return {"param": floats(param), "grad": floats(grad), "m": floats(m)}

    wide = matrices([[1.0, -0.5, 2.0], [0.25, 1.5, -1.0]], [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]], [[0.0] * 3] * 2)
    tall = matrices([[1.0, 0.25], [-0.5, 1.5], [2.0, -1.0]], [[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]], [[0.0] * 2] * 3)
    used = matrices([[2.0, 1.0], [0.5, -1.0]], [[1.0, 0.0], [0.0, 1.0]], [[0.5, -0.25], [1.0, 0.125]])
    add("wide-first", "[in, out] = [2, 3], t = 1: the scale is √(3/2).", wide, {"step": 1, "learning_rate": 0.125})
    add(
        "tall-first",
        "[3, 2], t = 1: the scale is 1, not √(2/3) and not √(3/2).",
        tall,
        {"step": 1, "learning_rate": 0.125},
    )
    add(
        "square-tenth",
        "t = 10 with momentum: β¹¹ in the first term, β¹⁰ in the second.",
        used,
        {"step": 10, "learning_rate": 0.125},
    )
    add("square-first", "t = 1 with momentum.", used, {"step": 1, "learning_rate": 0.125})
    add("no-nesterov-first", "Without Nesterov, t = 1.", used, {"step": 1, "learning_rate": 0.125, "nesterov": False})
    add("no-nesterov-tenth", "Without Nesterov, t = 10.", used, {"step": 10, "learning_rate": 0.125, "nesterov": False})
    add(
        "decay",
        "Decoupled decay, not scaled by the shape.",
        wide,
        {"step": 1, "learning_rate": 0.125, "weight_decay": 0.5},
    )
    add(
        "beta-and-ns-steps",
        "β = .5 and one Newton-Schulz step.",
        used,
        {"step": 2, "learning_rate": 0.25, "beta": 0.5, "ns_steps": 1},
        m=[1.25, 0.375, 0.75, -0.4375],
    )
    column = matrices([[3.0, 4.0, 0.0, 0.0]], [[0.0] * 4], [[0.0] * 4])
    add(
        "row",
        "[1, 4]: the scale is 2.",
        column,
        {"step": 1, "learning_rate": 0.5, "nesterov": False, "ns_steps": 1},
        param=[-0.4206, -0.5608, 0, 0],
    )
    still = matrices([[0.0] * 2] * 2, [[1.0, 2.0], [3.0, 4.0]], [[0.0] * 2] * 2)
    add(
        "zero-gradient",
        "Zero gradient and momentum: only decay moves θ.",
        still,
        {"step": 1, "learning_rate": 0.125, "weight_decay": 0.5},
        param=[0.9375, 1.875, 2.8125, 3.75],
    )
    return book


def _clip() -> Book:
    book = Book("clip_by_global_norm", ["O4"], "beyond the paper")
    add = book.add
    pair = {"grads.w": floats([[3.0, 0.0]]), "grads.b": floats([4.0])}
    add(
        "above",
        "norm 5 > 1: all times 1/5; the norm returned is the one before.",
        pair,
        {"max_norm": 1.0},
        norm=[5],
        **{"grads.w": [0.6, 0], "grads.b": [0.8]},
    )
    add("below", "norm 5 < 8: unchanged.", pair, {"max_norm": 8.0}, norm=[5], **{"grads.w": [3, 0], "grads.b": [4]})
    add(
        "equal", "norm = max_norm: unchanged.", pair, {"max_norm": 5.0}, norm=[5], **{"grads.w": [3, 0], "grads.b": [4]}
    )
    add(
        "global",
        "Each gradient is below max_norm, together they are above: √3 > 1.5.",
        {"grads.a": floats([1.0]), "grads.b": floats([[1.0]]), "grads.c": floats(-1.0)},
        {"max_norm": 1.5},
        norm=[1.7320508],
        **{"grads.c": [-0.8660254]},
    )
    add(
        "zero",
        "All zero: norm 0, unchanged, no 0/0.",
        {"grads.w": floats([0.0, 0.0])},
        {"max_norm": 1.0},
        norm=[0],
        **{"grads.w": [0, 0]},
    )
    add(
        "small", "Gradients of 2⁻⁴⁰ are not scaled up.", {"grads.w": floats([2.0**-40, -(2.0**-40)])}, {"max_norm": 1.0}
    )
    add(
        "large",
        "Gradients of 1024, max_norm .01.",
        {"grads.w": floats([[1024.0, -1024.0], [512.0, 0.5]])},
        {"max_norm": 0.01},
    )
    return book


def _schedule() -> Book:
    book = Book("schedule", ["O5"], "app. D")

    def add(name: str, comment: str, value: float, update: int, **rest: object) -> None:
        fields = {"update": update, "learning_rate": 0.25, "total": 12, **rest}
        # A number of the host in float64, whatever the dtype of the arrays.
        book.add(name, comment, {}, fields, dtypes=["float64"], result=[value])

    # At f = ½ and 7/8, from .0625 + .1875·share: the shares are 1/8, (1 + cos 7π/8)/2 = .0380602 and 1/64 at 7/8.
    kinds = {
        "constant": (0.25, 0.25),
        "linear": (0.15625, 0.0859375),
        "cosine": (0.15625, 0.0696363),
        "polynomial": (0.109375, 0.0654297),
    }
    for decay, (half, last) in kinds.items():
        warm = {"warmup": 4, "decay": decay, "end": 0.0625} | ({"power": 2.0} if decay == "polynomial" else {})
        add(f"{decay}-warmup", "t = 1 of a warmup of 4: lr/4.", 0.0625, 1, **warm)
        add(f"{decay}-warmup-end", "t = warmup: lr.", 0.25, 4, **warm)
        add(f"{decay}-after-warmup", "t = warmup + 1: f = 0, lr.", 0.25, 5, **warm)
        add(f"{decay}-half", "t = 9: f = ½.", half, 9, **warm)
        add(f"{decay}-total", "t = total: f = 7/8, not yet the end.", last, 12, **warm)
        end = 0.25 if decay == "constant" else 0.0625
        add(f"{decay}-past", "t = total + 1: f = 1, the end.", end, 13, **warm)
        add(f"{decay}-far-past", "t far past the total: f stays 1.", end, 1000, **warm)
    curve = {"warmup": 4, "decay": "polynomial", "end": 0.0625}
    add("polynomial-power-1", "Power 1, the default, is linear.", 0.15625, 9, **curve)
    add("polynomial-root", "Power .5.", 0.1950825, 9, **curve, power=0.5)
    add("no-warmup-first", "No warmup, t = 1: lr.", 0.25, 1, decay="linear")
    add("no-warmup-cosine", "No warmup, t = 5 of 12: f = 1/3, (1 + ½)/2.", 0.1875, 5, decay="cosine")
    add("defaults", "Without options: constant.", 0.25, 7)
    return book


def books() -> list[Book]:
    """The cases of the optimisers."""
    return [_adam(), _orthogonalize(), _muon(), _clip(), _schedule()]
