"""Linear algebra under NumPy's names: what ``eg.linalg`` offers."""

from .ops import diagonals as _diagonals
from .ops.decompositions import cholesky as cholesky
from .ops.decompositions import eig as eig
from .ops.decompositions import eigh as eigh
from .ops.decompositions import eigvals as eigvals
from .ops.decompositions import eigvalsh as eigvalsh
from .ops.decompositions import qr as qr
from .ops.diagonals import diag as diag
from .ops.diagonals import matrix_transpose as matrix_transpose
from .ops.diagonals import tril as tril
from .ops.diagonals import triu as triu
from .ops.einsum import einsum as einsum
from .ops.einsum import vecdot as vecdot
from .ops.inverses import det as det
from .ops.inverses import inv as inv
from .ops.inverses import pinv as pinv
from .ops.inverses import slogdet as slogdet
from .ops.inverses import solve as solve
from .ops.inverses import solve_triangular as solve_triangular
from .ops.linalg import cross as cross
from .ops.linalg import dot as dot
from .ops.linalg import inner as inner
from .ops.linalg import kron as kron
from .ops.linalg import matmul as matmul
from .ops.linalg import multi_dot as multi_dot
from .ops.linalg import outer as outer
from .ops.linalg import tensordot as tensordot
from .ops.linalg import vdot as vdot
from .ops.matrix_functions import expm as expm
from .ops.matrix_functions import lstsq as lstsq
from .ops.matrix_functions import matrix_power as matrix_power
from .ops.matrix_norms import cond as cond
from .ops.matrix_norms import matrix_norm as matrix_norm
from .ops.matrix_norms import matrix_rank as matrix_rank
from .ops.matrix_norms import norm as norm
from .ops.matrix_norms import vector_norm as vector_norm
from .ops.svd import svd as svd
from .ops.svd import svdvals as svdvals

# of stacks of matrices, where eg.diagonal and eg.trace take the first two axes
diagonal = _diagonals.matrix_diagonal
trace = _diagonals.matrix_trace

__all__ = sorted(name for name in globals() if not name.startswith("_"))
