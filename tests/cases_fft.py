"""Calls of the Fourier transforms, and what they compute in NumPy's words."""

import numpy as np
from cases_linalg import draw

Z = draw(3, 4) + 1j * draw(4, 3).T

MANY = [
    ((Z,), (3, 4), (0, 1), "backward"),
    ((Z,), (2, 6), (1, 0), "ortho"),
    ((draw(2, 3),), (3,), (1,), "forward"),
    ((draw(2, 3),), (4,), (1,), "ortho"),
]

ROWS = {
    "fftn": MANY,
    "ifftn": MANY,
    "rfft": [
        ((draw(5),), 5, 0, "backward"),
        ((draw(2, 4),), 4, 1, "ortho"),
        ((draw(3, 2),), 6, 0, "forward"),
        ((draw(2, 5),), 2, 1, "ortho"),
        ((draw(3),), 1, 0, "forward"),
    ],
    "irfft": [
        ((Z[:, 0],), 4, 0, "backward"),
        ((Z[:, 0],), 5, 0, "ortho"),
        ((Z,), 6, 1, "forward"),
        ((Z,), 3, 1, "backward"),
        ((Z,), 9, 0, "ortho"),
        ((Z,), 1, 0, "forward"),
    ],
}
REFERENCES = {name: getattr(np.fft, name) for name in ROWS}
