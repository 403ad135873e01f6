"""Every exception the package raises on purpose, in one tree.

    EagergradError
    |-- DeviceError      (ValueError)    unknown or absent device, devices mixed
    |-- ShapeError       (ValueError)    shapes that do not fit an op
    |-- MatrixError      (LinAlgError)   a matrix that is singular, or not definite
    |-- DTypeError       (TypeError)     dtypes or argument types that do not fit an op
    |-- GradientError    (ValueError)    a rule or a seed of the wrong count or shape
    |-- TapeError        (RuntimeError)  a tape used up or never entered
    |   `-- ReentryError (ValueError)    a tape entered while it is recording
    |-- NoRuleError      (LookupError)   an op without a derivative rule was reached
    |-- NaNError         (ArithmeticError)  raised under ``debug(nan_check=True)``
    |-- KernelError      (RuntimeError)  kernels that are required and cannot be had
    |-- CaptureError     (RuntimeError)  a function that cannot become a program
    |-- OutOfMemoryError (MemoryError)   a device has no room for what is made
    |-- DataError        (ValueError)    a data set file that is missing or malformed
    `-- CheckpointError  (ValueError)    a checkpoint file that cannot be read

Each also derives from the standard class in brackets, so that ``except ValueError``
does what a reader expects.  Messages say: op, expected, got, remedy.
"""

from __future__ import annotations

from numpy.linalg import LinAlgError


class EagergradError(Exception):
    """Base of all errors raised by eagergrad."""


class DeviceError(EagergradError, ValueError):
    """An unknown or unavailable device, or two devices in one operation."""


class ShapeError(EagergradError, ValueError):
    """Shapes that do not fit an operation."""


class MatrixError(EagergradError, LinAlgError):
    """A matrix that is singular, not definite, or does not converge."""


class DTypeError(EagergradError, TypeError):
    """Dtypes or argument types that do not fit an operation."""


class GradientError(EagergradError, ValueError):
    """A gradient rule or a seed with the wrong number, shape or kind of values."""


class TapeError(EagergradError, RuntimeError):
    """A tape that was used up, never entered, or closed."""


class ReentryError(TapeError, ValueError):
    """A tape was entered while it was recording already."""


class NoRuleError(EagergradError, LookupError):
    """A derivative was asked of an operation that has no rule for it."""


class NaNError(EagergradError, ArithmeticError):
    """An operation made a NaN or an infinity while ``debug(nan_check=True)``."""


class KernelError(EagergradError, RuntimeError):
    """A kernel that cannot be compiled, loaded or launched."""


class CaptureError(EagergradError, RuntimeError):
    """Something a captured function does that a program cannot repeat."""


class OutOfMemoryError(EagergradError, MemoryError):
    """A device without room for the result of an operation."""


class DataError(EagergradError, ValueError):
    """A data set file that is missing, truncated or inconsistent."""


class CheckpointError(EagergradError, ValueError):
    """A checkpoint file that cannot be read."""


class DTypeWarning(UserWarning):
    """Something integer was treated as a source of gradients."""
