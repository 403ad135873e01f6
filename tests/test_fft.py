"""Fourier transforms: NumPy's values, transposes, and the edges."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

rng = np.random.default_rng(0)
NORMS = [None, "ortho", "forward"]


def draw(name, *shape):
    x = rng.normal(size=shape)
    real = name.startswith(("rfft", "ihfft"))
    return x if real else x + 1j * rng.normal(size=shape)


def same(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, 1e-12, 1e-13)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name, norm):
    f = getattr(eg.fft, name)
    for shape, axis in [((5,), -1), ((4, 3), 0), ((2, 4), 1)]:
        x = draw(name, *shape)
        for n in (None, 3, 4, 6, 7):
            same(f(x, n, axis, norm), getattr(np.fft, name)(x, n, axis, norm))
        for n in (None, 3, 6):
            check_grads(lambda x, n=n, axis=axis: f(x, n, axis, norm), [x])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_several_axes(name, norm):
    x = draw(name, 4, 3, 5)
    for s, axes in [(None, None), ((3, 4), (0, 1)), (None, (2, 0)), ((4, 6), (-1, 0))]:
        same(
            getattr(eg.fft, name)(x, s, axes, norm),
            getattr(np.fft, name)(x, s, axes, norm),
        )
        check_grads(
            lambda x, s=s, axes=axes: getattr(eg.fft, name)(x, s, axes, norm), [x]
        )


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_two_axes(name):
    x = draw(name, 2, 3, 4)
    same(getattr(eg.fft, name)(x), getattr(np.fft, name)(x))
    check_grads(getattr(eg.fft, name), [x])


@pytest.mark.parametrize("name", ["fft", "irfft", "hfft", "ifftn"])
def test_real_numbers_where_complex_ones_are_taken(name):
    x = rng.normal(size=5)
    same(getattr(eg.fft, name)(x), getattr(np.fft, name)(x))
    check_grads(getattr(eg.fft, name), [x])


def test_the_gradient_points_up():
    """Of 1/2 |fft(z)|^2 it is n z, not its conjugate; of a real x it is real."""
    z = np.array([1 + 2j, -1j, 0.5])

    def energy(z):
        return 0.5 * eg.sum(abs(eg.fft.fft(z)) ** 2)

    np.testing.assert_allclose(eg.gradients_function(energy)(z)[0].numpy(), 3 * z)
    (g,) = eg.gradients_function(energy)(z.real)
    assert g.dtype == "float64"
    np.testing.assert_allclose(g.numpy(), 3 * z.real, atol=1e-15)


def test_what_a_real_inverse_does_not_read_has_no_gradient():
    z = np.array([1 + 1j, 2 - 1j, 3 + 1j])
    (g,) = eg.gradients_function(lambda z: eg.fft.irfft(z, 4)[1])(z)
    # 1/4 (z0 + 2 Re(i z1) - z2), of z0 and z2 the real parts
    np.testing.assert_allclose(g.numpy(), [0.25, -0.5j, -0.25], atol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_dtypes(dtype):
    x = np.arange(6).astype(dtype)
    assert eg.fft.fft(x).dtype == eg.fft.rfft(x).dtype == "complex64"
    assert eg.fft.irfft(x).dtype == "float32"
    if dtype != "int64":
        for f in (eg.fft.fft, eg.fft.rfft, eg.fft.irfft):
            (g,) = eg.gradients_function(lambda x, f=f: eg.sum(abs(f(x))))(x)
            assert g.dtype == dtype


def test_shifts_and_frequencies():
    for shape, axes in [((5,), None), ((4, 3), None), ((4, 3), 0), ((4, 3), (-1,))]:
        x = rng.normal(size=shape)
        same(eg.fft.fftshift(x, axes), np.fft.fftshift(x, axes))
        same(eg.fft.ifftshift(x, axes), np.fft.ifftshift(x, axes))
        check_grads(lambda x, axes=axes: eg.fft.fftshift(x, axes), [x])
    np.testing.assert_allclose(eg.fft.fftfreq(5, 0.1).numpy(), np.fft.fftfreq(5, 0.1))
    np.testing.assert_allclose(eg.fft.rfftfreq(5).numpy(), np.fft.rfftfreq(5))


def test_of_no_signals():
    assert eg.fft.fft(np.ones((0, 4))).shape == (0, 4)
    assert eg.fft.rfft(np.ones((0, 4))).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: eg.fft.fft(np.ones(3), 0), ValueError, "fft: .*one point"),
        (lambda: eg.fft.fft(np.ones(3), axis=1), ValueError, "axis 1 is out of range"),
        (lambda: eg.fft.rfft(1j * np.ones(3)), TypeError, "rfft: expected real"),
        (lambda: eg.fft.ifft(np.ones(3), norm="no"), ValueError, "ifft: norm is"),
        (lambda: eg.fft.fftn(np.ones(3), axes=(0, 0)), ValueError, "each once"),
        (lambda: eg.fft.fftn(np.ones((3, 3)), (1,), (0, 1)), ValueError, "as many"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, eg.errors.EagergradError)
