"""The dense layer: numbers by hand, every form it has, errors, edges."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.device import NUMPY
from eagergrad.errors import DTypeError, ShapeError
from eagergrad.ops.dense import BACKWARD, FORWARD
from eagergrad.primitive import OPS, forget
from eagergrad.testing import check_grads

X = np.array([[1.0, 2.0], [-1.0, 0.5]])
W = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, -1.0]])
B = np.array([0.5, 1.0, 2.0])
Z = np.array([[1.5, 1.0, 0.5], [-0.5, 3.5, 1.0]])  # X W + B
ACTIVATIONS = {"none": None, "relu": eg.relu, "tanh": eg.tanh, "gelu": eg.gelu}
# Rows, inputs, outputs: products made by the kernels, by the library, and by either.
SIZES = {"small": (3, 4, 5), "between": (4, 16, 32), "large": (70, 40, 30)}
hosted = pytest.mark.skipif(
    host_kernels.problem() is not None, reason=f"{host_kernels.problem()}"
)


@pytest.fixture(params=["kernels", "composed"])
def form(request, monkeypatch):
    """With kernels, where there is a compiler, and without."""
    with monkeypatch.context() as patch:
        patch.setattr(NUMPY, "fused", request.param == "kernels")
        forget()
        yield
    forget()


def draw(*shapes, dtype="float64"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def layer(sizes, *leading):
    m, k, n = sizes
    return draw((*leading, m, k), (k, n), (n,))


def gradients(f, arrays, g):
    xs = [eg.tensor(x) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    return [y, *tape.gradient(y, xs, output_gradients=eg.tensor(g))]


def test_sizes_are_on_both_sides_of_the_limits():
    small, between, large = (m * k * n for m, k, n in SIZES.values())
    assert small <= FORWARD < between <= BACKWARD < large


def test_by_hand(form):
    np.testing.assert_array_equal(eg.dense(X, W, B).numpy(), Z)
    g = np.ones((2, 3))
    y, dx, dw, db = gradients(lambda x, w, b: eg.dense(x, w, b, eg.relu), [X, W, B], g)
    np.testing.assert_array_equal(y.numpy(), [[1.5, 1.0, 0.5], [0.0, 3.5, 1.0]])
    np.testing.assert_array_equal(dx.numpy(), [[-0.5, 0.0], [-1.5, 0.0]])
    np.testing.assert_array_equal(dw.numpy(), [[1.0, 0.0, 0.0], [2.0, 2.5, 2.5]])
    np.testing.assert_array_equal(db.numpy(), [1.0, 2.0, 2.0])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("leading", [(), (2,), (2, 1)])
def test_is_what_it_is_composed_of(form, activation, sizes, leading):
    act = ACTIVATIONS[activation]
    arrays = layer(SIZES[sizes], *leading)
    (g,) = draw((*arrays[0].shape[:-1], arrays[1].shape[1]))

    def composed(x, w, b):
        z = x @ w + b
        return z if act is None else act(z)

    found = gradients(lambda x, w, b: eg.dense(x, w, b, act), arrays, g)
    for got, wanted in zip(found, gradients(composed, arrays, g), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-11, 1e-11)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_derivatives_of_both_orders(form, activation):
    act = ACTIVATIONS[activation]
    check_grads(lambda x, w, b: eg.dense(x, w, b, act), layer(SIZES["small"]))
    check_grads(lambda x, w: eg.dense(x, w, None, act), layer(SIZES["small"])[:2])
    check_grads(lambda w: eg.dense(X[0], w, B, act), [W])


def test_one_vector(form):
    np.testing.assert_array_equal(eg.dense(X[1], W, B).numpy(), Z[1])


def test_without_a_bias(form):
    np.testing.assert_array_equal(eg.dense(X, W).numpy(), Z - B)
    y = eg.dense(X, W, activation=eg.relu)
    np.testing.assert_array_equal(y.numpy(), np.maximum(Z - B, 0))


def test_is_one_entry_of_a_tape():
    x, w, b = map(eg.tensor, (X, W, B))
    for activation, names in {
        None: ["dense"],
        eg.relu: ["dense"],
        eg.tanh: ["dense"],
        eg.sigmoid: ["dense", "sigmoid"],
    }.items():
        with eg.GradientTape() as tape:
            tape.watch([x, w, b])
            y = eg.dense(x, w, b, activation)
            assert [entry.name for entry in tape.entries()] == names, y


def test_any_function_is_an_activation():
    y = eg.dense(X, W, B, lambda z: 2.0 * z)
    np.testing.assert_array_equal(y.numpy(), 2 * Z)


def test_what_needs_no_gradient_is_not_computed(form):
    x, w, _ = layer(SIZES["large"])
    g = np.ones((70, 30))
    rule = OPS["dense"].lowered[np.ndarray][0]
    dx, dw, _ = rule(g, x, w, g, (None, w, None), "")
    assert dx is None
    np.testing.assert_allclose(dw, x.T @ g, 1e-12)
    composed = OPS["dense"].composed_rules[np.ndarray][0]
    assert composed(g, x, w, g, (None, None, None), "") == (None, None, None)


@pytest.mark.parametrize(
    ("dtypes", "result"),
    [
        (("float32", "float32", "float32"), "float32"),
        (("float16", "float16", "float16"), "float16"),
        (("float32", "float64", "float32"), "float64"),
        (("int64", "float32", "float32"), "float32"),
        (("int64", "int64", "int64"), "float32"),
        (("complex64", "float32", "float32"), "complex64"),
    ],
)
def test_dtypes(form, dtypes, result):
    arrays = [x.astype(d) for x, d in zip((X, 2 * W, 2 * B), dtypes, strict=True)]
    y = eg.dense(*arrays)
    assert y.dtype == result
    exact = arrays[0].astype("c16") @ arrays[1] + arrays[2]
    np.testing.assert_allclose(y.numpy(), exact, 1e-3)
    xs = [eg.tensor(x) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch([x for x in xs if x.dtype.kind in "fc"])
        y = eg.dense(*xs, eg.tanh)
    floats = [x for x in xs if x.dtype.kind in "fc"]
    assert [g.dtype for g in tape.gradient(y, floats)] == [x.dtype for x in floats]


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_inf_flow_as_in_the_composed_form(form, activation, sizes):
    x, w, b = layer(SIZES[sizes])
    x[0, 0], x[1, 1], w[2, 0], b[-1] = np.nan, np.inf, 0, -np.inf
    act = ACTIVATIONS[activation]
    with np.errstate(all="ignore"):
        z = x @ w + b
        y = {"none": z, "relu": np.maximum(z, 0), "tanh": np.tanh(z)}[activation]
        (g,) = draw(y.shape)
        slope = {"none": np.ones_like(y), "relu": (y > 0) * 1.0, "tanh": 1 - y * y}
        dz = g * slope[activation]
        wanted = [y, dz @ w.T, x.T @ dz, dz.sum(0)]
    found = gradients(lambda *xs: eg.dense(*xs, act), [x, w, b], g)
    for got, exact in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), exact, 1e-11, 1e-11)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_nothing(form, shape):
    m, k, n = shape
    x, w, b = np.ones((m, k)), np.ones((k, n)), np.arange(n) + 1.0
    y, dx, dw, db = gradients(
        lambda *xs: eg.dense(*xs, eg.relu), [x, w, b], np.ones((m, n))
    )
    np.testing.assert_array_equal(y.numpy(), x @ w + b)
    np.testing.assert_array_equal(dx.numpy(), np.full((m, k), float(n)))
    np.testing.assert_array_equal(dw.numpy(), np.full((k, n), float(m)))
    np.testing.assert_array_equal(db.numpy(), np.full(n, float(m)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_layout(form, dtype):
    (x, w, b, g) = draw((3, 4), (4, 5), (5,), (3, 5), dtype=dtype)

    def rule(*arrays):
        return gradients(lambda *xs: eg.dense(*xs, eg.tanh), arrays[:3], arrays[3])

    def spread(a):
        return np.repeat(a, 2, -1)[..., ::2]

    def turned(a):
        return a.T.copy().T

    plain = rule(x, w, b, g)
    for layout in (spread, turned, lambda a: a[::-1].copy()[::-1]):
        for got, wanted in zip(rule(*map(layout, (x, w, b, g))), plain, strict=True):
            np.testing.assert_allclose(
                got.numpy(), wanted.numpy(), 4 * np.finfo(dtype).eps, 1e-3
            )
    x = eg.tensor(x)
    with eg.GradientTape() as tape:  # a cotangent that is one number, seen as many
        tape.watch(x)
        y = eg.sum(eg.dense(x, w, b))
    got = tape.gradient(y, x).numpy().astype("f8")
    np.testing.assert_allclose(got, [w.sum(1, dtype="f8")] * 3, 1e-2)


@hosted
def test_kernels_do_not_depend_on_threads():
    """Many rows are shared out among threads, few columns of them are not."""
    z, g, b = draw((1000, 300), (1000, 300), (300,), dtype="float32")
    forward = host_kernels.find("activation")
    backward = host_kernels.find("activation_vjp")
    for number in np.arange(3):
        y = forward(z, b, number)
        few = np.ascontiguousarray(z[:, :7]), b[:7].copy()
        np.testing.assert_array_equal(y[:, :7], forward(*few, number))
        dz, db = backward(g, y, number)
        few_dz, few_db = backward(g[:, :7].copy(), y[:, :7].copy(), number)
        np.testing.assert_array_equal(dz[:, :7], few_dz)
        np.testing.assert_array_equal(db[:7], few_db)
        np.testing.assert_allclose(db, dz.sum(0, dtype="f8"), 1e-4, 1e-4)


@hosted
def test_many_small_products_in_one_call():
    """A kernel broadcasts, as the ufuncs of NumPy do."""
    x, w, b = draw((6, 3, 4), (6, 4, 5), (5,), dtype="float32")
    y = host_kernels.find("dense")(x, w, b, np.array(1))
    np.testing.assert_allclose(y, np.maximum(x @ w + b, 0), 1e-5, 1e-6)


@pytest.mark.parametrize("missing", ["dense", "activation", "activation_vjp"])
def test_is_composed_where_a_kernel_is_missing(missing, monkeypatch):
    find = host_kernels.find
    with monkeypatch.context() as patch:
        patch.setattr(
            host_kernels, "find", lambda name: None if name == missing else find(name)
        )
        forget()
        y, *grads = gradients(
            lambda *xs: eg.dense(*xs, eg.relu), [X, W, B], np.ones((2, 3))
        )
    forget()
    np.testing.assert_array_equal(y.numpy(), np.maximum(Z, 0))
    np.testing.assert_array_equal(grads[2].numpy(), [1.0, 2.0, 2.0])


def test_captured():
    x, w, b = layer(SIZES["large"])
    w, b = eg.Variable(w), eg.Variable(b)

    def loss(x):
        return eg.mean(eg.dense(x, w, b, eg.tanh))

    both = eg.implicit_value_and_gradients(loss)

    @eg.function
    def captured(x):
        value, pairs = both(x)
        return [value, *(g for g, _ in pairs)]

    value, pairs = both(eg.tensor(x))
    for _ in range(2):
        found = captured(eg.tensor(x))
        for got, wanted in zip(found, [value, *(g for g, _ in pairs)], strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-12)


@pytest.mark.parametrize(
    ("x", "w", "b", "part"),
    [
        (X, W[:1], B, "x is (2, 2), w (1, 3), b (3,)"),
        (X, W, B[:1], "x is (2, 2), w (2, 3), b (1,)"),
        (X, W, B[:2], "x is (2, 2), w (2, 3), b (2,)"),
        (X, W, [B], "x is (2, 2), w (2, 3), b (1, 3)"),
        (X, W[:1], None, "x is (2, 2), w (1, 3), b None"),
        (X, W[:, 0], B, "x is (2, 2), w (2,), b (3,)"),
        (X[0, 0], W, B, "x is (), w (2, 3), b (3,)"),
        (X, [W], B, "x is (2, 2), w (1, 2, 3), b (3,)"),
    ],
)
def test_sizes_that_do_not_fit(x, w, b, part):
    with pytest.raises(ShapeError) as caught:
        eg.dense(x, w, b, eg.relu)
    assert str(caught.value) == (
        f"dense: expected x (..., n), w (n, m) and b (m,): {part}"
    )


def test_what_is_no_activation():
    with pytest.raises(DTypeError, match=r"dense: expected a function .* got 'relu'"):
        eg.dense(X, W, B, "relu")
    with pytest.raises(DTypeError, match="dense: expected real numbers, got complex"):
        eg.dense(X * 1j, W, B, eg.relu)
