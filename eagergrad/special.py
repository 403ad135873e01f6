"""Special functions under SciPy's names: what ``eg.special`` offers."""

from .ops.special import beta as beta
from .ops.special import betaln as betaln
from .ops.special import digamma as digamma
from .ops.special import entr as entr
from .ops.special import erf as erf
from .ops.special import erfc as erfc
from .ops.special import erfcx as erfcx
from .ops.special import erfinv as erfinv
from .ops.special import expit as expit
from .ops.special import gammainc as gammainc
from .ops.special import gammaln as gammaln
from .ops.special import i0 as i0
from .ops.special import i0e as i0e
from .ops.special import i1 as i1
from .ops.special import i1e as i1e
from .ops.special import log_ndtr as log_ndtr
from .ops.special import logit as logit
from .ops.special import ndtr as ndtr
from .ops.special import ndtri as ndtri
from .ops.special import polygamma as polygamma
from .ops.special import xlog1py as xlog1py
from .ops.special import xlogy as xlogy

__all__ = sorted(name for name in globals() if not name.startswith("_"))
