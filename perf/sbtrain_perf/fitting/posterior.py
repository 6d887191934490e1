"""Uncertainty of a least-squares fit carried over to what it predicts (Laplace's method)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def posterior_covariance(jacobian: Floats) -> Floats:
    """Covariance of the parameters, from the Jacobian of unit-variance residuals, priors
    among them; shape (parameters, parameters)."""
    return np.asarray(np.linalg.pinv(jacobian.T @ jacobian), dtype=np.float64)


def log_slopes(
    function: Callable[[Floats], Floats], x: Floats, *, step: float = 1e-4
) -> Floats:
    """Forward differences of the logarithms that `function` returns, shape (rows,
    parameters)."""
    base = function(x)
    columns = []
    for i in range(len(x)):
        moved = x.copy()
        moved[i] += step
        columns.append((function(moved) - base) / step)
    return np.stack(columns, axis=1)
