"""Calls of the ops of linear algebra, and what they compute in NumPy's words."""

import numpy as np

LABELS = [  # shapes and labels: matrices, batches, no sum, all summed, transposed
    ((2, 3), (3, 4), ((0, 1), (1, 2), (0, 2))),
    ((2, 3, 4), (2, 4, 3), ((0, 1, 2), (0, 2, 3), (3, 0, 1))),
    ((2,), (3, 2), ((0,), (1, 2), (2, 0, 1))),
    ((2, 3), (3, 2), ((0, 1), (1, 0), ())),
    ((3, 2), (3, 2), ((0, 1), (0, 1), (1,))),
    ((), (3,), ((), (0,), (0,))),
]


def draw(*shape, scale=1.0):
    """Numbers in no order, none near another."""
    values = (np.arange(np.prod(shape, dtype=int)) * 0.61803398875 + 0.3) % 1
    return (scale * (2 * values - 1)).reshape(shape)


def regular(*shape):
    """Matrices far from singular, with eigenvalues far from another."""
    n = shape[-1]
    return draw(*shape, n, scale=0.4) + np.diag(1.5 * np.arange(1, n + 1))


def tall(*shape):
    """The columns are far from dependent, the singular values from another."""
    n = shape[-1]
    return draw(*shape, scale=0.3) + np.eye(*shape[-2:]) * (1 + np.arange(n))


def definite(n):
    return draw(n, n, scale=0.3) + np.diag(np.arange(2.0, n + 2))


SQUARE = [((regular(3),),), ((regular(2, 2),),), ((np.array([[0.7]]),),)]
HERMITIAN = [((regular(3),),), ((regular(2, 2),),)]
TRIANGLES = [((draw(3, 4),), 0), ((draw(2, 3, 3),), -1), ((draw(3),), 1)]
WIDE = tall(4, 2).T

ROWS = {
    "contract": [((draw(*a), draw(*b)), spec) for a, b, spec in LABELS],
    "cross": [((draw(3), draw(6)[::2]),), ((draw(2, 3), draw(4, 1, 3)),)],
    "diagonal": [
        ((draw(3, 4),), 0, 0, 1),
        ((draw(3, 4),), -1, 1, 0),
        ((draw(2, 3, 4),), 1, 2, 0),
        ((draw(2, 2),), 3, 0, 1),
    ],
    "onto_diagonal": [
        ((draw(3),), (3, 3), 0, 0, 1),
        ((draw(2),), (4, 4), -2, 0, 1),
        ((draw(2, 3),), (3, 2, 4), 1, 0, 2),
    ],
    "tril": TRIANGLES,
    "triu": TRIANGLES,
    "inv": SQUARE,
    "solve": [
        ((regular(3), draw(3, 2)),),
        ((regular(2, 2), draw(2, 1)),),
        ((regular(2), draw(3, 2, 2)),),
    ],
    "pinv": [((tall(4, 2),), 1e-10), ((WIDE,), 1e-10), ((tall(2, 3, 2),), 1e-10)],
    "det": SQUARE,
    "cofactors": SQUARE[1:],
    "cofactor_slope": [
        ((regular(3), draw(3, 3)),),
        ((regular(2, 2), draw(2, 2, 2)),),
        ((np.array([[0.7]]), np.array([[0.3]])),),
    ],
    "slogdet": SQUARE,
    "cholesky": [((definite(3),),), ((np.stack([definite(2), 2 * definite(2)]),),)],
    "qr": [((tall(4, 2),),), ((regular(2, 2),),)],
    "eigh": HERMITIAN,
    "eig": HERMITIAN,
    "svd": [((tall(4, 2),),), ((WIDE,),), ((regular(2, 2),),)],
    "svd_full": [((tall(3, 2),),), ((tall(3, 2).T,),)],
    "length": [
        ((draw(2, 3),), None, False),
        ((draw(2, 3),), -1, True),
        ((draw(2, 3, 2),), (0, 2), False),
        ((draw(),), None, False),
    ],
    "expm": [((draw(3, 3),),), ((draw(2, 2, 2),),), ((6.0 * draw(2, 2),),)],
}


def _joined(parts):
    return np.concatenate([np.ravel(part) for part in parts])


def _onto_diagonal(x, shape, offset, axis1, axis2):
    out = np.zeros(shape, x.dtype)
    for i in range(x.shape[-1]):
        index = [slice(None)] * len(shape)
        index[axis1], index[axis2] = i + max(-offset, 0), i + max(offset, 0)
        out[tuple(index)] = x[..., i]
    return out


def _expm(x):
    w, v = np.linalg.eig(x)
    return ((v * np.exp(w)[..., None, :]) @ np.linalg.inv(v)).real


def _cofactors(x):
    return np.linalg.det(x)[..., None, None] * np.linalg.inv(x).swapaxes(-1, -2)


def _cofactor_slope(x, g):
    """By the derivative of det(x) inv(x)^T."""
    w = np.linalg.inv(x).swapaxes(-1, -2)
    along = (w * g).sum((-1, -2), keepdims=True)
    slope = along * w - w @ g.swapaxes(-1, -2) @ w
    return np.linalg.det(x)[..., None, None] * slope


REFERENCES = {
    "contract": lambda a, b, spec: np.einsum(a, spec[0], b, spec[1], spec[2]),
    "diagonal": np.diagonal,
    "onto_diagonal": _onto_diagonal,
    "inv": np.linalg.inv,
    "solve": np.linalg.solve,
    "pinv": np.linalg.pinv,
    "det": np.linalg.det,
    "cofactors": _cofactors,
    "cofactor_slope": _cofactor_slope,
    "slogdet": lambda x: _joined(np.linalg.slogdet(x)),
    "cholesky": np.linalg.cholesky,
    "qr": lambda x: _joined(np.linalg.qr(x)),
    "eigh": lambda x: _joined(np.linalg.eigh(x)),
    "eig": lambda x: _joined(np.linalg.eig(x)),
    "svd": lambda x: _joined(np.linalg.svd(x, full_matrices=False)),
    "svd_full": lambda x: _joined(np.linalg.svd(x)),
    "length": lambda x, axis, keepdims: np.sqrt(
        np.sum(x * x, axis=axis, keepdims=keepdims)
    ),
    "expm": _expm,
}
