"""Normalization, dropout and attention: numbers by hand, edges, second derivatives."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.device import NUMPY
from eagergrad.primitive import forget
from eagergrad.testing import check_grads

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3, 4, 5))


@pytest.fixture(params=["kernels", "composed"])
def form(request, monkeypatch):
    """With kernels, where there is a compiler, and without."""
    with monkeypatch.context() as patch:
        patch.setattr(NUMPY, "fused", request.param == "kernels")
        forget()
        yield
    forget()


def standard(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_layer_norm(form):
    gamma, beta = RNG.normal(size=5), RNG.normal(size=5)
    y = eg.layer_norm(X, gamma, beta, eps=0.1)
    np.testing.assert_allclose(y.numpy(), standard(X, 2, 0.1) * gamma + beta, 1e-12)
    y = eg.layer_norm(X, axis=(1, 2))
    np.testing.assert_allclose(y.numpy(), standard(X, (1, 2), 1e-5), 1e-12)
    check_grads(lambda x, g, b: eg.layer_norm(x, g, b, eps=0.1), [X, gamma, beta])
    check_grads(
        lambda x, g: eg.layer_norm(x, g, axis=(-2, -1)), [X, RNG.normal(size=(4, 5))]
    )


def test_batch_norm(form):
    gamma, beta = RNG.normal(size=4), RNG.normal(size=4)
    y = eg.batch_norm(X, gamma, beta).numpy()
    expected = standard(X, (0, 2), 1e-5) * gamma[:, None] + beta[:, None]
    np.testing.assert_allclose(y, expected, 1e-12)
    last = eg.batch_norm(X.transpose(0, 2, 1), gamma, beta, axis=-1).numpy()
    np.testing.assert_allclose(last.transpose(0, 2, 1), expected, 1e-12)
    check_grads(eg.batch_norm, [X, gamma, beta])
    given = eg.batch_norm(X, mean=X.mean((0, 2)), variance=X.var((0, 2))).numpy()
    np.testing.assert_allclose(given, standard(X, (0, 2), 1e-5), 1e-12)
    check_grads(
        lambda x, m, v: eg.batch_norm(x, mean=m, variance=v), [X, gamma, gamma**2]
    )


@pytest.mark.parametrize("scale", [1e-3, 1e25, 2e38])
def test_batch_norm_near_the_end_of_its_range(scale, form):
    x = (scale * np.array([[1.0], [-1.0], [0.5], [0.0]])).astype("float32")
    expected = standard(x.astype("float64"), 0, 0.0)
    np.testing.assert_allclose(eg.batch_norm(x, eps=0.0).numpy(), expected, 1e-5)


def test_batch_norm_of_half_types_and_of_mixed_ones(form):
    half = np.array([[60000.0], [-60000.0]], "float16")
    assert eg.batch_norm(half).tolist() == [[1.0], [-1.0]]
    assert eg.batch_norm(half).dtype == "float16"
    x, gamma = X.astype("float32"), RNG.normal(size=4)
    with eg.GradientTape() as tape:
        sources = eg.tensor(x), eg.tensor(gamma)
        tape.watch(sources)
        y = eg.batch_norm(*sources)
    grads = tape.gradient(y, sources, y)
    assert [t.dtype.name for t in (y, *grads)] == ["float64", "float32", "float64"]
    expected = standard(x.astype("f8"), (0, 2), 1e-5) * gamma[:, None]
    np.testing.assert_allclose(y.numpy(), expected, 1e-5, 1e-6)


def test_the_other_norms(form):
    x, gamma = RNG.normal(size=(2, 4, 3, 2)), RNG.normal(size=4)
    parts = x.reshape(2, 2, -1)
    np.testing.assert_allclose(
        eg.group_norm(x, 2).numpy(), standard(parts, 2, 1e-5).reshape(x.shape), 1e-12
    )
    np.testing.assert_allclose(
        eg.instance_norm(x).numpy(), standard(x, (2, 3), 1e-5), 1e-12
    )
    np.testing.assert_allclose(
        eg.rms_norm(X, eps=0.0).numpy(), X / np.sqrt((X**2).mean(-1, keepdims=True))
    )
    check_grads(lambda x, g: eg.group_norm(x, 2, g, g), [x, gamma])
    check_grads(lambda x, g: eg.instance_norm(x, g, g), [x, gamma])
    check_grads(eg.rms_norm, [X, RNG.normal(size=5)])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e25, 2e38])
def test_float32_near_the_end_of_its_range(scale, form):
    x = (scale * np.array([[1.0, -1.0, 0.5, 0.0]])).astype("float32")
    expected = standard(x.astype("float64"), 1, 0.0)
    np.testing.assert_allclose(eg.layer_norm(x, eps=0.0).numpy(), expected, 1e-5)
    rms = x / np.sqrt((x.astype("float64") ** 2).mean())
    np.testing.assert_allclose(eg.rms_norm(x, eps=0.0).numpy(), rms, 1e-5)


def test_a_constant_row_and_half_types(form):
    x = np.full((2, 7), 1234.1, "float32")
    (dx,) = eg.gradients_function(lambda x: eg.sum(eg.layer_norm(x) * x))(x)
    assert np.isfinite(dx.numpy()).all()
    assert eg.layer_norm(x).tolist() == np.zeros((2, 7)).tolist()
    half = np.array([[60000.0, -60000.0]], "float16")
    assert eg.layer_norm(half).tolist() == [[1.0, -1.0]]
    assert eg.layer_norm(half).dtype == "float16"
    assert eg.layer_norm(np.ones((0, 3))).shape == (0, 3)
    assert eg.batch_norm(np.ones((0, 3))).shape == (0, 3)


def test_a_small_deviation_beside_a_large_mean(form):
    noise, g = RNG.normal(size=(2, 3, 100))
    x = (1e4 + 0.01 * noise).astype("float32")
    gamma = RNG.normal(size=100).astype("float32")

    def value_and_gradients(dtype):
        given = [v.astype(dtype) for v in (x, gamma)]
        f = eg.value_and_gradients_function(
            lambda x, gamma: eg.sum(eg.layer_norm(x, gamma, eps=0.0) * g.astype(dtype))
        )
        value, gradients = f(*given)
        return [value.numpy(), *[dx.numpy() for dx in gradients]]

    exact = value_and_gradients("float64")
    for got, expected in zip(value_and_gradients("float32"), exact, strict=True):
        assert got.dtype == "float32"
        error = abs(got - expected).max() / abs(expected).max()
        assert error < 1e-5


def test_norm_of_mixed_dtypes(form):
    x, gamma = X.astype("float16"), RNG.normal(size=5).astype("float32")
    beta = gamma.astype("float16")
    xs = [eg.tensor(v) for v in (x, gamma, beta)]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = eg.layer_norm(*xs)
    assert y.dtype == "float32"
    gradients = tape.gradient(y, xs)
    assert [g.dtype for g in gradients] == ["float16", "float32", "float16"]
    np.testing.assert_allclose(gradients[2].numpy(), np.full(5, 12.0))


def test_dropout():
    x = eg.ones(10_000)
    source = eg.random.Generator(3)
    y = eg.dropout(x, 0.25, generator=source).numpy()
    assert set(y.tolist()) == {0.0, float(np.float32(1) / np.float32(0.75))}
    assert 0.23 < (y == 0).mean() < 0.27
    again = eg.dropout(x, 0.25, generator=eg.random.Generator(3)).numpy()
    np.testing.assert_array_equal(y, again)
    assert not np.array_equal(y, eg.dropout(x, 0.25, generator=source).numpy())
    with eg.GradientTape() as tape:
        tape.watch(x)
        z = eg.dropout(x, 0.25, generator=source)
    assert tape.entries()[0].bytes == 0
    np.testing.assert_array_equal(tape.gradient(z, x).numpy(), z.numpy())
    assert eg.dropout(x, 0.5, training=False) is x
    assert eg.dropout(x, 1.0).numpy().max() == 0
    assert eg.dropout(np.array([np.inf]), 1.0).tolist() == [0.0]
    assert eg.dropout(eg.zeros((0, 2)), 0.5).shape == (0, 2)


def attention(q, k, v, allowed):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    e = np.where(allowed, np.exp(s), 0)
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300) @ v


def test_attention():
    q, k = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 5, 4))
    v = RNG.normal(size=(2, 5, 6))
    mask = RNG.random((3, 5)) > 0.5
    mask[1] = False  # a query that may look nowhere
    past = np.tri(3, 5, dtype=bool)
    attend = eg.scaled_dot_product_attention
    added = np.where(mask, 0.0, -np.inf)
    for options, allowed in [
        ({}, True),
        ({"causal": True}, past),
        ({"mask": mask}, mask),
        ({"mask": added}, mask),
        ({"mask": mask, "causal": True}, mask & past),
    ]:
        y = attend(q, k, v, **options).numpy()
        np.testing.assert_allclose(y, attention(q, k, v, allowed), 1e-12, 1e-12)
        check_grads(lambda q, k, v, o=options: attend(q, k, v, **o), [q, k, v])
    check_grads(lambda m: attend(q, k, v, mask=m), [RNG.normal(size=(3, 5))])
    assert attend(q, k[:, :0], v[:, :0]).tolist() == np.zeros((2, 3, 6)).tolist()
    expected = attention(q, k, v, past)[0, :2]
    keys = k.copy()
    keys[0, 2] = 1e300  # which queries 0 and 1 do not see
    keys = eg.tensor(keys)
    with eg.GradientTape() as tape:
        tape.watch(keys)
        y = attend(q, keys, v, causal=True)[0, :2]
    np.testing.assert_allclose(y, expected, 1e-12, 1e-12)
    assert tape.gradient(y, keys).numpy()[0, 2:].tolist() == np.zeros((3, 4)).tolist()
    large = attend(1e3 * q, 1e3 * k, v)
    assert np.isfinite(large.numpy()).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eg.layer_norm(X, np.ones(4)), "layer_norm: expected gamma"),
        (lambda: eg.layer_norm(X, axis=3), "layer_norm: axis 3"),
        (lambda: eg.layer_norm(X, axis=(0, 0)), "layer_norm: expected different"),
        (lambda: eg.batch_norm(X, beta=np.ones(5)), "batch_norm: expected beta"),
        (lambda: eg.batch_norm(X, mean=np.ones(4)), "batch_norm: give both"),
        (lambda: eg.batch_norm(np.ones(3)), "batch_norm: expected"),
        (lambda: eg.group_norm(X, 3), "group_norm: "),
        (lambda: eg.instance_norm(X[0]), "instance_norm: "),
        (lambda: eg.dropout(X, 1.5), "dropout: expected a rate"),
        (lambda: eg.scaled_dot_product_attention(X, X[..., 1:], X), "q .* and k"),
        (lambda: eg.scaled_dot_product_attention(X, X, X[:, 1:]), "as many values"),
    ],
)
def test_errors(call, message):
    with pytest.raises(eg.errors.ShapeError, match=message):
        call()
