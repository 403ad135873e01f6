"""Convolution, pooling and resizing: numbers by hand, shapes, edges, errors."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

RNG = np.random.default_rng(0)


def gradient(f, *xs):
    return [g.numpy() for g in eg.make_vjp(lambda *a: eg.sum(f(*a)))(*xs)[1](1.0)]


def test_conv_by_hand():
    x = np.arange(4.0).reshape(1, 1, 4)
    w = np.array([[[1.0, 10.0]]])
    assert eg.conv(x, w).tolist() == [[[10.0, 21.0, 32.0]]]
    assert eg.conv1d(x, w, padding="same").tolist() == [[[10.0, 21.0, 32.0, 3.0]]]
    assert eg.conv1d(x, w, padding=[(1, 0)], stride=2).tolist() == [[[0.0, 21.0]]]
    assert eg.conv1d(x, w, dilation=3).tolist() == [[[30.0]]]
    dx, dw = gradient(eg.conv1d, x, w)
    assert dx.tolist() == [[[1.0, 11.0, 11.0, 10.0]]]
    assert dw.tolist() == [[[3.0, 6.0]]]


def test_conv_transpose_by_hand():
    x, w = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0, 100.0]]])
    assert eg.conv_transpose(x, w).tolist() == [[[1.0, 12.0, 120.0, 200.0]]]
    assert eg.conv_transpose(x, w, stride=2).tolist() == [[[1, 10, 102, 20, 200]]]
    y = eg.conv_transpose(x, w, stride=2, padding=1, output_padding=1)
    assert y.tolist() == [[[10, 102, 20, 200]]]


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "dilation": 2}])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients(options, groups):
    x, w = RNG.normal(size=(2, 4, 6, 5)), RNG.normal(size=(4, 4 // groups, 2, 2))
    check_grads(lambda x, w: eg.conv2d(x, w, groups=groups, **options), [x, w])
    check_grads(lambda x, w: eg.conv_transpose(x, w, groups=groups, **options), [x, w])


def test_depthwise_is_each_channel_apart():
    x, w = RNG.normal(size=(2, 3, 5, 5)), RNG.normal(size=(6, 1, 3, 3))
    y = eg.depthwise_conv2d(x, w, padding="same").numpy()
    for c in range(3):
        part = eg.conv2d(x[:, c : c + 1], w[2 * c : 2 * c + 2], padding=1).numpy()
        np.testing.assert_allclose(y[:, 2 * c : 2 * c + 2], part, 1e-12, 1e-12)


def test_an_empty_batch_and_a_strided_input():
    x, w = RNG.normal(size=(5, 6, 2, 3)), RNG.normal(size=(4, 3, 2, 2))
    assert eg.conv2d(np.ones((0, 3, 5, 5)), w).shape == (0, 4, 4, 4)
    dx, dw = gradient(eg.conv2d, np.ones((0, 3, 5, 5)), w)
    assert (dx.shape, abs(dw).max()) == ((0, 3, 5, 5), 0)
    view = x.transpose(2, 3, 0, 1)[..., ::-1]
    np.testing.assert_allclose(
        eg.conv2d(view, w).numpy(), eg.conv2d(view.copy(), w).numpy(), 1e-13
    )


def test_half_types_accumulate_in_float32():
    x, w = np.ones((1, 4096, 1), "float16"), np.ones((1, 4096, 1), "float16")
    y = eg.conv1d(x, w)
    assert (y.dtype, y.item()) == ("float16", 4096.0)


def test_pooling_by_hand():
    x = np.array([[[1.0, 3.0, 3.0, 2.0, -1.0]]])
    assert eg.max_pool(x, 2).tolist() == [[[3.0, 3.0]]]
    assert gradient(lambda x: eg.max_pool(x, 2, 1), x)[0].tolist() == [
        [[0.0, 2.0, 1.0, 1.0, 0.0]]
    ]
    assert eg.avg_pool(x, 3, padding=1).tolist() == [[[4 / 3, 4 / 3]]]
    y = eg.avg_pool(x, 3, padding=1, count_include_pad=False)
    np.testing.assert_allclose(y.numpy(), [[[2.0, 4 / 3]]])
    y = eg.max_pool1d(np.array([[[1.0, np.nan, 2.0, 3.0]]]), 2)
    np.testing.assert_array_equal(y.numpy(), [[[np.nan, 3.0]]])


def test_pooling_gradients():
    x = RNG.permutation(2 * 2 * 5 * 6).reshape(2, 2, 5, 6) / 7.0
    check_grads(lambda x: eg.max_pool2d(x, 3, 2, 1), [x])
    check_grads(lambda x: eg.max_pool2d(x, (2, 3), padding="same"), [x])
    check_grads(lambda x: eg.avg_pool2d(x, 3, 2, 1), [x])
    check_grads(lambda x: eg.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [x])
    check_grads(lambda x: eg.adaptive_avg_pool(x, (3, 4)), [x])
    check_grads(lambda x: eg.adaptive_max_pool(x, (3, 4)), [x])
    check_grads(lambda x: eg.interpolate(x, (7, 3)), [x])
    check_grads(lambda x: eg.interpolate(x, (7, 3), "bilinear"), [x])


def test_average_beyond_the_range_of_the_sum():
    x = np.full((1, 1, 4), 3e38, "float32")
    assert eg.avg_pool(x, 4).item() == pytest.approx(3e38)
    assert eg.adaptive_avg_pool(x, 1).item() == pytest.approx(3e38)
    half = np.full((1, 1, 4), 60000, "float16")
    assert eg.avg_pool(half, 4).item() == 60000


def test_adaptive_and_resizing_by_hand():
    x = np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]])
    assert eg.adaptive_avg_pool(x, 3).tolist() == [[[1.5, 3.0, 4.5]]]
    assert eg.interpolate(x, 2).tolist() == [[[1.0, 3.0]]]
    assert eg.interpolate(x, 10).tolist() == [[[1, 1, 2, 2, 3, 3, 4, 4, 5, 5]]]
    y = eg.interpolate(np.array([[[0.0, np.inf, 2.0]]]), 9, "linear").numpy()
    assert not np.isnan(y).any()
    pooled = eg.adaptive_avg_pool(np.array([[[np.inf, 1.0, 2.0]]]), 2)
    assert pooled.tolist() == [[[np.inf, 1.5]]]


@pytest.mark.parametrize("sizes", [(5, 6), (7, 3), (1, 4)])
@pytest.mark.parametrize("outputs", [1, (2, 3), (5, 6), (3, 4), (8, 2)])
def test_adaptive_windows(outputs, sizes):
    """Each output is of the slice that its docstring says."""
    x = RNG.standard_normal((2, 3, *sizes))
    counts = outputs if isinstance(outputs, tuple) else (outputs,) * 2
    for pool, of in ((eg.adaptive_avg_pool, np.mean), (eg.adaptive_max_pool, np.max)):
        y = pool(x, outputs)
        assert y.shape == (2, 3, *counts)
        for place in np.ndindex(counts):
            window = tuple(
                slice(i * n // m, -(-(i + 1) * n // m))
                for i, n, m in zip(place, sizes, counts, strict=True)
            )
            expected = of(x[:, :, *window], axis=(2, 3))
            np.testing.assert_allclose(y.numpy()[:, :, *place], expected)


def test_adaptive_largest_of_equal_ones_is_the_first_row_by_row():
    for x, first in (([[1, 2], [2, 2]], (0, 1)), ([[1, 1], [2, 2]], (1, 0))):
        (g,) = eg.gradients_function(lambda x: eg.adaptive_max_pool(x, 1))(
            np.array([[x]], "float32")
        )
        assert [tuple(i) for i in np.argwhere(g.numpy()[0, 0])] == [first]
    y = eg.adaptive_max_pool(np.array([[[1.0, np.nan, 2.0]]]), 2)
    np.testing.assert_array_equal(y.numpy(), [[[np.nan, np.nan]]])


X = np.ones((1, 2, 5, 5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eg.conv2d(X[0], X), "conv2d: expected 4 axes"),
        (lambda: eg.conv1d(X, X), "conv1d: expected 3 axes"),
        (lambda: eg.conv2d(X, np.ones((2, 3, 1, 1))), "conv2d: .*groups=1"),
        (lambda: eg.conv2d(X, np.ones((3, 1, 1, 1)), groups=2), "groups=2"),
        (lambda: eg.conv2d(X, np.ones((3, 2, 6, 6))), "does not fit"),
        (lambda: eg.conv2d(X, X, stride=0), "conv2d: expected stride"),
        (lambda: eg.conv2d(X, X, stride=(1, 1, 1)), "conv2d: expected stride"),
        (lambda: eg.conv2d(X, X, padding="full"), "conv2d: expected padding"),
        (lambda: eg.conv2d(X, X, padding=-1), "conv2d: expected padding"),
        (lambda: eg.conv_transpose(X, np.ones((3, 1, 1, 1))), "conv_transpose: "),
        (lambda: eg.max_pool2d(X, 2, padding=2), "max_pool2d: padding"),
        (lambda: eg.max_pool(X, 6), "max_pool: .*does not fit"),
        (lambda: eg.avg_pool1d(X, 2), "avg_pool1d: expected"),
        (lambda: eg.interpolate(X, 3, "cubic"), "interpolate: expected mode"),
    ],
)
def test_errors(call, message):
    with pytest.raises(eg.errors.ShapeError, match=message):
        call()
