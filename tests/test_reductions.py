"""Statistics and scans: against NumPy, and by hand at the edges."""

import math

import numpy as np
import pytest
from op_cases import draw

import eagergrad as eg
from eagergrad.testing import check_grads

nan, inf = math.nan, math.inf


def gradient(f, *arrays):
    """The gradient of the sum of f by each array, in one list."""
    xs = [eg.tensor(np.asarray(x, "float64")) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    found = [g.tolist() for g in tape.gradient(y, xs)]
    return found[0] if len(found) == 1 else found


def close(got, expected, rtol=1e-12):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.numpy(), expected, rtol, 1e-12)


X = draw((2, 3, 4))
HOLES = X.copy()
HOLES[0, 1, 2] = HOLES[1, 0, 0] = HOLES[1, 2, 3] = nan
AXES = [None, 0, -1, (0, 2), (2, -2), (0, 1, 2)]
REDUCTIONS = ["prod", "var", "std", "amax", "amin", "ptp", "median", "count_nonzero"]
WITHOUT_NAN = [f"nan{name}" for name in "sum prod mean var std max min median".split()]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS + WITHOUT_NAN)
def test_reductions_against_numpy(name, axis):
    x = HOLES if name in WITHOUT_NAN else X
    for keep in (False, True):
        expected = getattr(np, name)(x, axis=axis, keepdims=keep)
        close(getattr(eg, name)(x, axis=axis, keepdims=keep), expected)
    strided = np.asfortranarray(x)[:, ::-1]
    expected = getattr(np, name)(strided, axis=axis)
    close(getattr(eg, name)(eg.tensor(strided), axis=axis), expected)


@pytest.mark.parametrize("axis", [None, -1, (0, 2)], ids=str)
@pytest.mark.parametrize("name", [*REDUCTIONS[:-1], "norm"])
def test_reductions_against_differences(name, axis):
    check_grads(lambda x: getattr(eg, name)(x, axis=axis), [X])
    check_grads(lambda x: getattr(eg, name)(x, axis=axis, keepdims=True), [X])


@pytest.mark.parametrize("axis", [None, 1], ids=str)
@pytest.mark.parametrize("name", WITHOUT_NAN)
def test_nan_is_left_out_of_gradients(name, axis):
    hole = np.isnan(HOLES)

    def holed(x):
        return getattr(eg, name)(eg.where(hole, nan, x), axis=axis)

    check_grads(holed, [X])
    assert np.all(np.array(gradient(holed, X))[hole] == 0)


@pytest.mark.parametrize("name", [*REDUCTIONS, *WITHOUT_NAN])
def test_scalars_and_dtypes(name):
    f, g = getattr(eg, name), getattr(np, name)
    close(f(2.5), g(2.5))
    for dtype in ("float16", "float32"):
        y = f(X.astype(dtype))
        assert y.dtype == ("int64" if name == "count_nonzero" else dtype)
        close(y, g(X.astype(dtype).astype("float64")), 2e-3)
    whole = f(np.array([[1, 2], [3, 5]]), axis=0)
    assert whole.dtype in ("int64", "float32")
    close(whole, g(np.array([[1, 2], [3, 5]]), axis=0), 1e-6)


def test_half_types_accumulate_in_float32():
    x = np.full(3000, 40.0, "float16")
    x[::2] = 0
    assert eg.var(x).item() == 400.0
    assert eg.std(x).item() == 20.0
    assert eg.nanmean(x).item() == 20.0
    assert eg.average(x).item() == 20.0
    assert eg.cumsum(np.full(4096, 1.0, "float16"))[-1].item() == 4096.0
    assert eg.prod(np.array([2000, 2000, 1e-4], "float16")).item() == 400.0


def test_empty():
    x = np.zeros((0, 3))
    close(eg.prod(x), 1.0)
    close(eg.prod(x, axis=0), np.ones(3))
    close(eg.var(x, axis=0), np.full(3, nan))
    close(eg.std(x, axis=1), np.zeros(0))
    close(eg.nanmean(x, axis=0), np.full(3, nan))
    close(eg.median(x, axis=0), np.full(3, nan))
    close(eg.nanmedian(x, axis=0), np.full(3, nan))
    close(eg.norm(x), 0.0)
    for f in (eg.cumsum, eg.cumprod, eg.cummax, eg.logcumsumexp, eg.sort):
        assert gradient(lambda x, f=f: f(x, axis=0), x) == []
        assert gradient(lambda x, f=f: f(x, axis=1), x.T) == [[], [], []]
    assert eg.argsort(x, axis=0).shape == (0, 3)


# ------------------------------------------------------------------- zeros and powers


def test_products_with_zeros():
    assert gradient(eg.prod, [0, 2, 3]) == [6, 0, 0]
    assert gradient(eg.prod, [0, 0, 3]) == [0, 0, 0]
    assert gradient(eg.prod, 0.0) == 1
    assert gradient(eg.nanprod, [0, nan, 3]) == [3, 0, 0]
    rows = [[1, 2, 3], [0, 2, 3], [0, 0, 3]]
    assert gradient(lambda x: eg.prod(x, 1), rows) == [[6, 3, 2], [6, 0, 0], [0, 0, 0]]
    check_grads(eg.prod, [np.array([0.0, 2.0, 3.0])], 3)
    check_grads(eg.prod, [np.array([0.0, 0.0, 3.0])], 3)
    check_grads(lambda x: eg.prod(x, (0, 2)), [draw((2, 3, 2)) * (draw((2, 3, 2)) > 0)])
    weights = np.array([1.0, 2, 4, 8])
    for x in ([2.0, 0, 3, 4], [0.0, 5, 0, 4], [0.0, 0, 0, 1]):
        check_grads(lambda x: eg.cumprod(x) * weights, [np.array(x)], 3)


def test_a_zero_stops_what_overflows_after_it():
    assert gradient(eg.cumprod, [5, 0, 1e200, 1e200])[0] == 1
    assert gradient(eg.cumprod, [5, 0, 1e200, 1e200])[2:] == [0, 0]


def test_half_products_through_intermediates_beyond_their_range():
    x = eg.tensor(np.array([300, 300, 0.001, 0.5], "float16"))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.prod(x)
    g = tape.gradient(y, x).numpy().astype("float64")
    np.testing.assert_allclose(g, [0.15, 0.15, 45000, 90.06], 1e-2)


# ------------------------------------------------------------------ spreads and norms


@pytest.mark.parametrize("ddof", [0, 1, 1.5])
def test_ddof(ddof):
    close(eg.var(X, 1, ddof), X.var(1, ddof=ddof))
    close(eg.std(X, 1, ddof), X.std(1, ddof=ddof))
    close(eg.nanvar(HOLES, 1, ddof), np.nanvar(HOLES, 1, ddof=ddof))
    close(eg.nanstd(HOLES, 1, ddof), np.nanstd(HOLES, 1, ddof=ddof))


def test_too_few_for_ddof():
    assert not np.isfinite(eg.var([2.0], ddof=1).item())
    assert not np.isfinite(eg.std([2.0], ddof=1).item())
    assert np.isnan(eg.nanvar([2.0, nan], ddof=1).item())
    assert np.isnan(eg.nanstd([nan, nan]).item())


@pytest.mark.parametrize("value", [1.0, 0.1, -7.3, 1e6 / 3])
def test_std_of_equal_values_has_gradient_0(value):
    for f in (eg.std, eg.nanstd, eg.var):
        found = np.abs(gradient(f, [value] * 3))
        assert found.max() < 1e-9
    assert gradient(eg.std, [value]) == [0]
    assert gradient(eg.nanstd, [value, nan]) == [0, 0]


def test_large_and_small_values():
    x = np.array([3e200, -4e200])
    assert eg.norm(x).item() == pytest.approx(5e200)
    assert eg.norm(x * 1e-300 * 1e-100).item() == pytest.approx(5e-200)
    assert gradient(eg.norm, x) == pytest.approx([0.6, -0.8])
    assert eg.std(np.array([1e200, -1e200])).item() == pytest.approx(1e200)


def test_norms():
    x = np.array([3.0, 0.0, -4.0])
    for order in (None, 0, 1, 2, 3, 0.5, inf, -inf):
        close(eg.norm(x, order), np.linalg.norm(x, order))
    close(eg.norm(X[0], "fro"), np.linalg.norm(X[0]))
    assert gradient(eg.norm, [0, 0]) == [0, 0]
    assert gradient(lambda x: eg.norm(x, axis=1), [[3, 4], [0, 0]]) == [
        [0.6, 0.8],
        [0, 0],
    ]


def test_complex_spread():
    z = X[0] + 1j * X[1]
    close(eg.var(z, 0), z.var(0))
    close(eg.std(z), z.std())
    check_grads(lambda z: eg.std(z, 0), [z])
    check_grads(lambda z: eg.var(z, 1), [z])
    check_grads(lambda z: eg.prod(z, 1), [z])
    check_grads(lambda z: eg.cumprod(z, 1), [z])


# ----------------------------------------------------------------- averages, quantiles


def test_average():
    w = abs(draw((2, 3, 4)))
    close(eg.average(X, weights=w), np.average(X, weights=w))
    close(eg.average(X, 1), np.average(X, 1))
    close(eg.average(X, -1, w[0, 0]), np.average(X, -1, w[0, 0]))
    close(eg.average(X, 1, w, keepdims=True), np.average(X, 1, w, keepdims=True))
    mean, total = eg.average(X, 2, w, returned=True)
    close(mean, np.average(X, 2, w))
    close(total, w.sum(2))
    close(eg.average(X, 0, returned=True)[1], np.full((3, 4), 2.0))
    check_grads(lambda x, w: eg.average(x, 1, w), [X, w])
    check_grads(lambda x, w: eg.average(x, 2, w), [X, w[0, 0]])
    with pytest.raises(eg.errors.ShapeError, match="average: expected weights in"):
        eg.average(X, 0, w[0])


METHODS = ["linear", "lower", "higher", "nearest", "midpoint"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", [None, 1, (0, 2)], ids=str)
def test_quantiles(axis, method):
    for q in (0, 0.3, 0.5, 1.0, [0.2, 0.9], [[0.1], [0.75]]):
        for keep in (False, True):
            expected = np.quantile(X, q, axis, method=method, keepdims=keep)
            close(eg.quantile(X, q, axis, method, keep), expected)
    close(eg.percentile(X, 30, axis), np.percentile(X, 30, axis))
    check_grads(lambda x: eg.quantile(x, [0.3, 0.8], axis, method), [X])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)], ids=str)
def test_quantiles_without_nan(axis, method):
    for q in (0, 0.3, 0.5, 1.0, [0.2, 0.9]):
        for keep in (False, True):
            expected = np.nanquantile(HOLES, q, axis, method=method, keepdims=keep)
            close(eg.nanquantile(HOLES, q, axis, method, keep), expected)
    # NumPy leaves the second axis of q at the end
    square = eg.nanquantile(HOLES, [[0.1], [0.75]], axis, method)
    flat = np.nanquantile(HOLES, [0.1, 0.75], axis, method=method)
    close(square, flat[:, None])
    close(eg.nanpercentile(HOLES, 30, axis), np.nanpercentile(HOLES, 30, axis))
    holed = eg.tensor(np.where(np.isnan(HOLES), nan, 0.0))
    check_grads(lambda x: eg.nanquantile(x + holed, [0.3, 0.8], axis, method), [X])


def test_quantiles_without_nan_at_the_edges():
    x = np.array([[nan, nan, nan], [nan, 2.0, inf], [1.0, 1.0, nan]])
    close(eg.nanquantile(x, 0.0, 1), [nan, 2, 1])
    close(eg.nanquantile(x, 0.5, 1), [nan, inf, 1])
    close(eg.nanquantile(x, [0.0, 1.0], 1), [[nan, 2, 1], [nan, inf, 1]])
    rows = [[0, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert gradient(lambda x: eg.nanquantile(x, 0.0, 1), x) == rows
    half = eg.nanquantile(x.astype("float16"), 0.25, 0)
    assert half.dtype == "float16"
    close(eg.nanquantile(np.zeros((0, 2)), 0.5, 0), [nan, nan])
    with pytest.raises(eg.errors.ShapeError, match=r"nanpercentile: .* \[0, 100\]"):
        eg.nanpercentile(x, 101)


def test_quantiles_at_the_edges():
    assert gradient(eg.median, [4, 1, 3, 2]) == [0, 0, 0.5, 0.5]
    assert gradient(eg.median, [2, 2, 2]) == [0, 1, 0]
    assert np.isnan(eg.median([1.0, nan, 2.0]).item())
    close(eg.median([[1.0, nan], [1.0, 3.0]], 1), [nan, 2.0])
    assert eg.median([inf, inf]).item() == inf
    assert eg.quantile([1.0, inf], 0.0).item() == 1.0
    assert eg.median(np.array([1.7e308, 1.7e308])).item() == 1.7e308
    assert eg.quantile([3, 1, 2], 0.75).dtype == "float32"
    assert gradient(eg.nanmedian, [nan, 2, 3, 2, 3, nan]) == [0, 0, 0.5, 0.5, 0, 0]
    assert np.isnan(eg.nanmedian([nan, nan]).item())
    with pytest.raises(eg.errors.ShapeError, match="quantile: expected q in"):
        eg.quantile(X, 1.5)
    with pytest.raises(eg.errors.ShapeError, match="quantile: expected method in"):
        eg.quantile(X, 0.5, method="best")


def test_equal_and_missing_extremes():
    assert gradient(eg.nanmax, [nan, 3, 3]) == [0, 0.5, 0.5]
    assert gradient(eg.nanmin, [nan, inf, nan]) == [0, 1, 0]
    assert gradient(eg.nanmax, [nan, nan]) == [0, 0]
    assert np.isnan(eg.nanmax([nan, nan]).item())
    assert gradient(eg.nanmean, [nan, 1, 2, 3, 4]) == [0, 0.25, 0.25, 0.25, 0.25]
    assert gradient(eg.ptp, [1, 5, 3]) == [-1, 1, 0]


@pytest.mark.parametrize("axis", [None, 0, 1, -1], ids=str)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_positions_without_nan(name, keep, axis):
    close(
        getattr(eg, name)(HOLES, axis, keep),
        getattr(np, name)(HOLES, axis, keepdims=keep),
    )
    whole = (X * 3).astype(int)
    close(getattr(eg, name)(whole, axis), getattr(np, name)(whole, axis))


def test_positions_without_nan_at_the_edges():
    x = np.array([[nan, nan], [nan, -inf], [3.0, 3.0]])
    assert eg.nanargmax(x, 1).tolist() == [-1, 1, 0]
    assert eg.nanargmin(-x, 1).tolist() == [-1, 1, 0]
    assert eg.nanargmax(x).dtype == "int64"
    assert eg.nanargmax([nan]).item() == -1
    with eg.GradientTape() as tape:
        source = eg.tensor([1.0, nan])
        tape.watch(source)
        y = eg.nanargmax(source)
    assert tape.gradient(y, source) is None


# ---------------------------------------------------------------------- scans


@pytest.mark.parametrize("axis", [None, 0, 1, -1], ids=str)
def test_scans_against_numpy(axis):
    for x in (X, np.asfortranarray(X), (X * 9).astype(int), X > 0):
        close(eg.cumsum(x, axis), np.cumsum(x, axis))
        close(eg.cumprod(x, axis), np.cumprod(x, axis))
    flat = (X.ravel(), 0) if axis is None else (X, axis)
    close(eg.cummax(X, axis), np.maximum.accumulate(*flat))
    close(eg.cummin(X, axis), np.minimum.accumulate(*flat))
    close(eg.logcumsumexp(X, axis), np.logaddexp.accumulate(*flat))
    for f in (eg.cumsum, eg.cumprod, eg.cummax, eg.cummin, eg.logcumsumexp):
        check_grads(lambda x, f=f: f(x, axis), [X])


@pytest.mark.parametrize("axis", [None, 0, 1, -1], ids=str)
def test_scans_without_nan(axis):
    hole = np.isnan(HOLES)
    for name in ("nancumsum", "nancumprod"):
        f, g = getattr(eg, name), getattr(np, name)
        close(f(HOLES, axis), g(HOLES, axis))
        close(f((X * 9).astype(int), axis), g((X * 9).astype(int), axis))
        check_grads(lambda x, f=f: f(eg.where(hole, nan, x), axis), [X])
    assert gradient(eg.nancumsum, [nan, 1, 2]) == [0, 2, 1]
    assert gradient(eg.nancumprod, [2, nan, 0, 3]) == [2, 0, 8, 0]


def test_running_extremes_at_the_edges():
    assert gradient(eg.cummax, [1, 3, 3, 2]) == [1, 3, 0, 0]
    assert gradient(eg.cummin, [2, 2, 1, 1]) == [2, 0, 2, 0]
    close(eg.cummax([1.0, nan, 2.0]), [1, nan, nan])
    assert gradient(eg.cummax, [1, nan, 2]) == [1, 2, 0]
    assert eg.cummax([2, 1, 3]).dtype == "int64"


def test_logcumsumexp_at_the_edges():
    y = eg.logcumsumexp([-inf, -inf, 0.0, 1000.0, 1000.0])
    close(y, [-inf, -inf, 0, 1000, 1000 + math.log(2)], 1e-6)
    found = gradient(eg.logcumsumexp, [-inf, -inf, 0, 1000, 1000])
    assert found == pytest.approx([0, 0, 1, 1.5, 0.5])
    assert gradient(eg.logcumsumexp, [1000, 0, -1000]) == [3, 0, 0]
    assert np.isnan(gradient(eg.logcumsumexp, [0, nan, 1])).all()
    assert gradient(eg.logcumsumexp, [0, inf, 1])[::2] == [1, 0]


def test_differences():
    for n in (0, 1, 2, 5):
        for axis in (0, -1):
            close(eg.diff(X, n, axis), np.diff(X, n, axis))
    close(eg.diff(X, prepend=0.0), np.diff(X, prepend=0))
    close(eg.diff(X, append=X[..., :2]), np.diff(X, append=X[..., :2]))
    assert eg.diff([True, False, False]).tolist() == [True, False]
    half = eg.diff(eg.tensor([1.0, 2.0], dtype="float16"), prepend=0.5)
    assert half.dtype == "float16"
    check_grads(lambda x: eg.diff(x, 2, 1), [X])
    with pytest.raises(eg.errors.ShapeError, match="diff: expected n >= 0"):
        eg.diff(X, -1)


def test_trapezoid():
    steps = np.cumsum(abs(draw((4,))))
    close(eg.trapezoid(X), np.trapezoid(X))
    close(eg.trapezoid(X, dx=0.5, axis=1), np.trapezoid(X, dx=0.5, axis=1))
    close(eg.trapezoid(X, steps), np.trapezoid(X, steps))
    close(eg.trapezoid(X, X * 2, axis=0), np.trapezoid(X, X * 2, axis=0))
    close(eg.trapezoid(X, steps[:3], axis=1), np.trapezoid(X, steps[:3], axis=1))
    check_grads(lambda y, x: eg.trapezoid(y, x), [X, steps])


def test_axes_out_of_range_are_named():
    for f in (eg.prod, eg.var, eg.std, eg.median, eg.cumsum, eg.sort, eg.argsort):
        with pytest.raises(eg.errors.ShapeError, match=f"{f.__name__}: axis 3 is out"):
            f(X, axis=3)
        with pytest.raises(eg.errors.DTypeError, match="expected an integer axis"):
            f(X, axis=0.5)
    with pytest.raises(eg.errors.ShapeError, match="prod: repeated axis"):
        eg.prod(X, (0, -3))


def test_nothing_is_kept_that_a_gradient_does_not_need():
    x = eg.tensor(X)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.cumsum(x, 1)
    assert tape.entries()[0].bytes == 0
    assert y is not None


def test_logsumexp_keeps_nan_and_infinity():
    assert np.isnan(gradient(eg.logsumexp, [nan, 1])).all()
    found = gradient(eg.logsumexp, [inf, 1])
    assert np.isnan(found[0])
    assert found[1] == 0
    assert gradient(eg.logsumexp, [-inf, -inf]) == [0, 0]
    assert gradient(eg.logsumexp, [-inf, 1]) == [0, 1]
