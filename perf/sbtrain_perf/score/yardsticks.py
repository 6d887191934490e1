"""The regressions of the CM-DARE paper, as it ran them on scikit-learn.

Linear regression, SVR with a polynomial kernel (degree 2, C=100, epsilon=.01, coef0=1) and
SVR with an RBF kernel (speed: C=100, epsilon=.01; checkpoints: C=10, epsilon=.14), on
min-max normalised features. Source: Li, Walls, Guo, ICDCS 2020 (arXiv 2004.03072).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Predictor = Callable[[Matrix], Vector]


def linear(features: Matrix, target: Vector) -> Predictor:
    """Ordinary least squares with an intercept."""
    design = np.column_stack([np.ones(len(target)), features])
    coefficients, *_ = np.linalg.lstsq(design, target, rcond=None)
    return lambda rows: np.column_stack([np.ones(len(rows)), rows]) @ coefficients


def svr(
    features: Matrix, target: Vector, *, kernel: str, c: float, epsilon: float
) -> Predictor:
    """Support vector regression on features scaled to [0, 1] over the fitted rows."""
    from sklearn.svm import SVR

    low, span = features.min(axis=0), np.ptp(features, axis=0)
    span = np.where(span > 0, span, 1.0)
    model = SVR(kernel=kernel, degree=2, coef0=1.0, C=c, epsilon=epsilon)
    model.fit((features - low) / span, target)
    return lambda rows: np.asarray(model.predict((rows - low) / span), dtype=float)


def relative_terms(features: Matrix, target: Vector) -> Predictor:
    """Non-negative least squares on relative error; the intercept is one of the features."""
    coefficients, _ = nnls(features / target[:, None], np.ones(len(target)))
    return lambda rows: np.asarray(rows @ coefficients)


def paper_models(
    features: Matrix, target: Vector, *, rbf_c: float, rbf_epsilon: float
) -> Sequence[tuple[str, Predictor]]:
    """The paper's three regressions, fitted, by the names that reports show."""
    return (
        ("linear", linear(features, target)),
        ("svr-poly", svr(features, target, kernel="poly", c=100.0, epsilon=0.01)),
        ("svr-rbf", svr(features, target, kernel="rbf", c=rbf_c, epsilon=rbf_epsilon)),
    )
