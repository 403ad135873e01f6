"""Linear algebra: numbers computed by hand, and the edges."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

rng = np.random.default_rng(0)
la = eg.linalg


def normal(*shape):
    return rng.normal(size=shape)


def complex_normal(*shape):
    return normal(*shape) + 1j * normal(*shape)


def gradient(f, x):
    return eg.gradients_function(f)(np.asarray(x))[0].numpy()


def same(got, expected):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.numpy(), expected, 1e-10, 1e-12)


EINSUMS = [
    ("iij->ij", (2, 2, 3)),
    ("iii", (3, 3, 3)),
    ("iiii->i", (2, 2, 2, 2)),
    ("abcd->bd", (3, 2, 3, 2)),
    ("ba", (2, 3)),
    ("ij->", (2, 3)),
    ("...i->...", (2, 3)),
    ("i...j,j", (2, 4, 3), (3,)),
    ("i,i", (3,), (1,)),
    ("iij,j->ij", (2, 2, 3), (3,)),
    ("ij,kj->", (2, 3), (4, 3)),
    (",i->i", (), (3,)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)),
    ("...a, ...b", (2, 1, 3), (4, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ij,ij,ij->", (2, 3), (2, 3), (2, 3)),
    ("i,j,k->kji", (2,), (3,), (4,)),
    ("i,i->i", (0,), (0,)),
    ("ij,j", (0, 3), (3,)),
]


@pytest.mark.parametrize(("spec", "shapes"), [(s, shapes) for s, *shapes in EINSUMS])
def test_einsum(spec, shapes):
    for make in (normal, complex_normal):
        xs = [make(*shape) for shape in shapes]
        same(eg.einsum(spec, *xs), np.einsum(spec, *xs))
        check_grads(lambda *xs: eg.einsum(spec, *xs), xs)


def test_einsum_with_lists_of_labels():
    a, b = normal(2, 3), normal(3, 4)
    same(eg.einsum(a, [0, 1], b, [1, 2], [2, 0]), (a @ b).T)
    same(eg.einsum(a, [0, 1], b, [1, 2]), a @ b)
    same(eg.einsum(a, [..., 1], b, [1, 2], [..., 2]), a @ b)


@pytest.mark.parametrize(
    "how", [True, "greedy", "optimal", ["einsum_path", (1, 2), (0, 1)]]
)
def test_einsum_in_any_order(how):
    xs = [normal(2, 3), normal(3, 4), normal(4, 2)]
    same(eg.einsum("ij,jk,kl", *xs, optimize=how), xs[0] @ xs[1] @ xs[2])


@pytest.mark.parametrize(
    ("spec", "shapes", "message"),
    [
        ("ij,jk", [(2, 3), (4, 2)], "lengths 3 and 4"),
        ("ij", [(2,)], "'ij' of 'ij' does not label"),
        ("i,j", [(2,)], "names 2 operand"),
        ("ij->ik", [(2, 3)], "'ik'.* must name labels"),
        ("ii->i", [(2, 3)], "lengths 2 and 3"),
        ("i...->i", [(2, 3)], "no '...'"),
        ("i1->i", [(2, 3)], "does not label"),
    ],
)
def test_einsum_says_what_does_not_fit(spec, shapes, message):
    with pytest.raises(eg.errors.ShapeError, match=message):
        eg.einsum(spec, *(np.ones(shape) for shape in shapes))


PRODUCTS = [
    ("dot", (), (2,)),
    ("dot", (3,), (3,)),
    ("dot", (2, 3, 4), (4,)),
    ("dot", (2, 3), (5, 3, 2)),
    ("inner", (2, 3), (4, 3)),
    ("outer", (2, 2), (3,)),
    ("vdot", (2, 3), (2, 3)),
    ("vecdot", (2, 1, 3), (4, 3)),
    ("kron", (2, 3), (4,)),
    ("kron", (2,), (3, 4, 2)),
    ("cross", (2, 3), (4, 1, 3)),
    ("tensordot", (2, 3, 4), (3, 4, 2)),
]


@pytest.mark.parametrize(("name", "first", "second"), PRODUCTS)
def test_products(name, first, second):
    for make in (normal, complex_normal):
        a, b = make(*first), make(*second)
        same(getattr(eg, name)(a, b), getattr(np, name)(a, b))
        check_grads(getattr(eg, name), [a, b])


def test_products_keep_float16_and_sum_in_float32():
    ones = np.ones(4096, "float16")
    for y in (eg.inner(ones, ones), eg.einsum("i,i", ones, ones)):
        assert y.dtype == "float16"
        assert y.item() == 4096


def test_axes_of_products():
    a, b = normal(2, 3, 4), normal(4, 2, 3)
    same(eg.tensordot(a, b, [[-1, 0], [0, 1]]), np.tensordot(a, b, [[-1, 0], [0, 1]]))
    same(eg.tensordot(a, b, 0), np.tensordot(a, b, 0))
    c, d = normal(3, 2), normal(2, 3)
    same(eg.cross(c, d, 0, 1, 0), np.cross(c, d, axisa=0, axisb=1, axisc=0))
    same(eg.vecdot(c, d.T, axis=0), np.vecdot(c, d.T, axis=0))
    for args in [(a, b, 2), (a, b, [[0], [0]]), (a, b, [[0, 0], [1, 1]]), (a, b, 4)]:
        with pytest.raises(eg.errors.ShapeError, match="tensordot"):
            eg.tensordot(*args)
    with pytest.raises(eg.errors.ShapeError, match="length 3"):
        eg.cross(np.ones(2), np.ones(2))


def test_multi_dot():
    xs = [normal(4), normal(4, 2), normal(2, 3), normal(3, 5)]
    for some in (xs, xs[1:], [xs[1], xs[2], normal(3)], [xs[0], normal(4)]):
        same(la.multi_dot(some), np.linalg.multi_dot(some))
    check_grads(lambda *xs: la.multi_dot(xs), xs)
    with pytest.raises(eg.errors.ShapeError, match="multi_dot"):
        la.multi_dot([normal(2, 2)])


def test_diagonals():
    x = normal(2, 3, 4)
    same(eg.trace(x), np.trace(x))
    same(eg.trace(x, 1, -1, 0), np.trace(x, 1, -1, 0))
    same(la.trace(x, offset=1), np.linalg.trace(x, offset=1))
    same(la.diagonal(x, offset=-1), np.linalg.diagonal(x, offset=-1))
    for k in (-4, -1, 0, 2):
        same(eg.diag(x[0], k), np.diag(x[0], k))
        same(eg.diag(x[0, 0], k), np.diag(x[0, 0], k))
    assert gradient(lambda x: eg.trace(x), np.ones((2, 3))).tolist() == [
        [1, 0, 0],
        [0, 1, 0],
    ]
    with pytest.raises(eg.errors.ShapeError, match="diag"):
        eg.diag(x)
    with pytest.raises(eg.errors.ShapeError, match="two different axes"):
        eg.diagonal(x, 0, 1, -2)


# ------------------------------------------------------------------- linear systems


def test_gradients_of_systems_by_hand():
    a = np.array([[2.0, 1.0], [0.0, 4.0]])
    # d(inv a)[0, 0] = -1 / a[0, 0]^2, and a[1, 0] comes in by -inv[0, 1] inv[0, 0]
    g = gradient(lambda a: la.inv(a)[0, 0], a)
    np.testing.assert_allclose(g, [[-0.25, 0.0], [0.0625, 0.0]], atol=1e-15)
    np.testing.assert_allclose(gradient(la.det, a), [[4, 0], [-1, 2]], atol=1e-14)


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        ([[0.0]], [[1.0]]),
        ([[1.0, 2.0], [2.0, 4.0]], [[4.0, -2.0], [-2.0, 1.0]]),
        ([[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]),
        (np.diag([0.0, 2.0, 3.0]), np.diag([6.0, 0.0, 0.0])),
    ],
)
def test_the_gradient_of_det_where_it_is_0(a, expected):
    np.testing.assert_allclose(gradient(la.det, a), expected, atol=1e-13)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("make", [normal, complex_normal])
def test_the_second_derivative_of_det_where_it_is_0(make, rank):
    a = make(3, rank) @ make(rank, 3)
    check_grads(la.det, [a])
    h = normal(3, 3)
    if make is normal:  # a cubic: its second difference is exact
        change = np.linalg.det(a + h) + np.linalg.det(a - h) - 2 * np.linalg.det(a)
        same(eg.sum(eg.hvp(la.det, a, h) * h), change)


def test_slogdet_of_a_singular_matrix():
    a = np.zeros((2, 2))
    sign, logabs = la.slogdet(a)
    assert (sign.item(), logabs.item()) == (0, -np.inf)

    def guarded(a):
        logabs = la.slogdet(a).logabsdet
        return eg.sum(eg.where(eg.isfinite(logabs), logabs, 0.0))

    g = gradient(guarded, np.stack([a, np.diag([2.0, 4.0])]))
    assert g.tolist() == [[[0, 0], [0, 0]], [[0.5, 0], [0, 0.25]]]


def test_slogdet_does_not_overflow():
    a = np.eye(400) * 1e3
    g = gradient(lambda a: la.slogdet(a)[1], a)
    np.testing.assert_allclose(g, np.eye(400) / 1e3)


@pytest.mark.parametrize("make", [normal, complex_normal])
def test_systems_against_differences(make):
    a, b = make(2, 3, 3) + 2 * np.eye(3), make(3, 2)
    for f in (la.inv, la.pinv, la.det, la.slogdet, la.eigvals):
        check_grads(f, [a])
    check_grads(la.solve, [a, b])
    check_grads(la.solve, [a, b[:, 0]])
    for shape in [(4, 2), (2, 4)]:
        check_grads(la.pinv, [make(*shape)])
    check_grads(lambda a: abs(la.eig(a).eigenvectors), [a])


@pytest.mark.parametrize("make", [normal, complex_normal])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(make, upper):
    a = make(2, 3, 3)
    square = a @ a.conj().swapaxes(1, 2)
    same(la.cholesky(square, upper), np.linalg.cholesky(square, upper=upper))
    check_grads(lambda a: la.cholesky(a @ eg.conj(a.swapaxes(1, 2)), upper), [a])


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [0, "T", "C"])
@pytest.mark.parametrize("unit_diagonal", [False, True])
def test_solve_triangular(lower, trans, unit_diagonal):
    a, b = complex_normal(3, 3) + 2 * np.eye(3), complex_normal(3, 2)
    whole = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        np.fill_diagonal(whole, 1)
    whole = {0: whole, "T": whole.T, "C": whole.conj().T}[trans]
    y = la.solve_triangular(a, b, trans, lower, unit_diagonal)
    same(y, np.linalg.solve(whole, b))
    check_grads(lambda a: la.solve_triangular(a, b, trans, lower, unit_diagonal), [a])


def test_what_is_singular_or_not_square_raises():
    with pytest.raises(ValueError, match="inv: Singular matrix"):
        la.inv(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"cholesky: .*positive definite"):
        la.cholesky(-np.eye(2))
    for f in (la.inv, la.det, la.slogdet, la.eigh, la.eig, la.cholesky, la.expm):
        with pytest.raises(eg.errors.ShapeError, match=r"square matrices.*\(2, 3\)"):
            f(np.ones((2, 3)))
    with pytest.raises(eg.errors.ShapeError, match="solve: sizes differ"):
        la.solve(np.eye(2), np.ones(3))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_dtypes_are_kept(dtype):
    a = np.array([[2.0, 0.5], [0.5, 1.0]], dtype)
    for f in (la.inv, la.det, la.expm, la.norm, la.svdvals, la.cond, la.cholesky):
        assert f(a).dtype == dtype
        assert gradient(lambda a, f=f: eg.sum(f(a)), a).dtype == dtype
    for f in (la.eigh, la.qr, la.svd, la.slogdet):
        assert {y.dtype for y in f(a)} == {np.dtype(dtype)}
    assert la.inv([[1, 0], [0, 2]]).dtype == "float32"


def test_matrices_of_nothing():
    for shape in [(0, 0), (2, 0, 0), (0, 2, 2)]:
        a = np.ones(shape)
        same(la.det(a), np.linalg.det(a))
        assert la.inv(a).shape == la.expm(a).shape == shape
        assert gradient(lambda a: eg.sum(la.eigh(a)[1]), a).shape == shape
        assert gradient(lambda a: eg.sum(la.svd(a)[0]), a).shape == shape


# ------------------------------------------------------------------- factorisations


def test_names_of_the_results_are_those_of_numpy():
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    for name in ("qr", "svd", "eigh", "eig", "slogdet"):
        got, expected = getattr(la, name)(a), getattr(np.linalg, name)(a)
        assert got._fields == expected._fields
        for y, z in zip(got, expected, strict=True):
            same(y, z)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 4)])
def test_factorisations_against_differences(shape):
    a = normal(*shape)
    check_grads(la.qr, [a])
    check_grads(lambda a: la.qr(a, "r"), [a])
    check_grads(lambda a: la.svd(a, full_matrices=False), [a])
    if shape[-1] == shape[-2]:
        for triangle in "LU":
            check_grads(lambda a, t=triangle: la.eigh(a, t), [a])


def test_eigenvectors_of_complex_matrices():
    def f(a):
        w, v = la.eigh(a)
        return w, abs(v), (v * eg.sin(w)) @ eg.conj(v.T)

    check_grads(f, [complex_normal(3, 3)])


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("make", [normal, complex_normal])
def test_svd_with_all_vectors(shape, make):
    def f(a):
        u, s, vh = la.svd(a)
        k = s.shape[0]
        left, right = u[:, k:], vh[k:]
        product = (u[:, :k] * eg.sin(s)) @ vh[:k]
        return s, product, left @ eg.conj(left.T), eg.conj(right.T) @ right

    check_grads(f, [make(*shape)])


@pytest.mark.parametrize("make", [normal, complex_normal])
def test_qr_of_complex_and_wide_matrices(make):
    for shape in [(3, 3), (4, 2), (2, 4)]:
        a = make(*shape)
        same(la.qr(a).Q, np.linalg.qr(a).Q)
        same(la.qr(a).R, np.linalg.qr(a).R)
        check_grads(lambda a: (la.qr(a).Q, la.qr(a).R), [a])
    with pytest.raises(eg.errors.ShapeError, match="complete"):
        la.qr(np.ones((3, 2)), "complete")


def symmetric(g):
    return (g + g.T) / 2


def test_equal_eigenvalues():
    """A loss that does not see which basis their space has gets its gradient."""
    g = gradient(lambda a: eg.sum(la.eigvalsh(a) ** 2), np.eye(3))
    np.testing.assert_allclose(symmetric(g), 2 * np.eye(3))
    q = np.linalg.qr(normal(3, 3))[0]
    a = (q * [1.0, 1.0, 3.0]) @ q.T

    def projector(a):
        v = la.eigh(a).eigenvectors[:, :2]  # the space of the equal ones
        return eg.sum(v @ v.T * np.arange(9.0).reshape(3, 3) ** 2)

    def difference(a, d, h=1e-6):
        return (projector(a + h * d).item() - projector(a - h * d).item()) / (2 * h)

    d = symmetric(normal(3, 3))
    g = gradient(projector, a)
    assert (g * d).sum() == pytest.approx(difference(a, d), rel=1e-5)


def test_equal_singular_values():
    """The skew part of a rotation within their space is seen, and is right."""

    def rebuilt(a):
        u, s, vh = la.svd(a, full_matrices=False)
        return eg.sqrt(eg.sum(((u * s) @ vh) ** 2))

    a = np.diag([1.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(gradient(rebuilt, a), a / np.sqrt(15), atol=1e-12)
    g = gradient(lambda a: eg.sum(la.svdvals(a)), np.eye(3))
    np.testing.assert_allclose(g, np.eye(3), atol=1e-12)
    g = gradient(lambda a: eg.sum(la.svdvals(a)), np.zeros((2, 3)))
    assert np.isfinite(g).all()


def test_forward_mode_of_several_outputs():
    a = eg.tensor(np.array([[2.0, 0.0], [0.0, 5.0]]))
    direction = eg.tensor(np.array([[1.0, 0.0], [1.0, 3.0]]))
    with eg.ForwardAccumulator(a, direction) as acc:
        w, v = la.eigh(a)
    assert acc.jvp(w).tolist() == [1.0, 3.0]
    np.testing.assert_allclose(abs(acc.jvp(v).numpy()), [[0, 1 / 3], [1 / 3, 0]])
