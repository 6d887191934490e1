"""Fitting data-parallel rates on GPU types and placements, packed on one server or spread,
from one-GPU rates and a few multi-GPU ones. The form is models.overlap.step_s.

Maximum a posteriori on log errors. What a network sends is its own; how packing, spreading
and the number of GPUs act is shared, with small departures of each network and GPU type.
Priors are our own, set on the Gavel throughputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from sbtrain_perf.fitting.posterior import log_slopes, posterior_covariance
from sbtrain_perf.models.overlap import step_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NOISE_SD = 0.10  # of a log rate about the fitted form
GPU_SD, NETWORK_SD = 0.40, 0.25  # departures of a GPU type and of a network


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRows:
    """Multi-GPU runs, arrays of shape (rows,).

    alone_s is the step of the same network and batch on one GPU of the type; step_s the
    measured step of one replica (nan where it is to be predicted).
    """

    network: NDArray[np.str_]
    gpu: NDArray[np.str_]
    gpus: Floats
    packed: NDArray[np.bool_]
    alone_s: Floats
    step_s: Floats

    def __len__(self) -> int:
        return len(self.network)

    def where(self, keep: NDArray[np.bool_]) -> ScalingRows:
        return ScalingRows(**{name: getattr(self, name)[keep] for name in self.__slots__})


class MultiGpuModel:
    """Fitted scaling. A network or GPU type that was not fitted gets the prior's middle."""

    def __init__(self, rows: ScalingRows) -> None:
        if not len(rows):
            raise ValueError("no multi-GPU rates to fit")
        self._networks = sorted(set(rows.network.tolist()))
        self._types = sorted(set(rows.gpu.tolist()))
        mean, sd = self._priors()

        def residuals(x: Floats) -> Floats:
            error = np.log(self._step_s(x, rows) / rows.step_s) / (0.8 * NOISE_SD)
            return np.concatenate([error, (x - mean) / sd])

        result = least_squares(residuals, mean, loss="soft_l1", f_scale=2.0, max_nfev=100)
        self._x: Floats = result.x
        self._covariance = posterior_covariance(result.jac)

    def predict(self, rows: ScalingRows) -> tuple[Floats, Floats]:
        """Step (seconds) and standard deviation of its logarithm, shape (rows,) each."""

        def centre(x: Floats) -> Floats:
            return np.log(self._step_s(x, rows))

        slopes = log_slopes(centre, self._x)
        variance = np.einsum("ij,jk,ik->i", slopes, self._covariance, slopes) + NOISE_SD**2
        return np.exp(centre(self._x)), np.sqrt(variance)

    def _priors(self) -> tuple[Floats, Floats]:
        """Shared: packed, its ring, spread, its ring, sharpness; then one entry more a kind
        than is known, for what was not fitted."""
        networks, types = len(self._networks) + 1, len(self._types) + 1
        mean = np.concatenate(
            [
                [-0.4, 1.2, 0.4, 1.0, -1.5],
                np.full(networks, np.log(0.05)),
                np.full(networks, -0.5),
                np.zeros(2 * types + 2 * networks),
            ]
        )
        sd = np.concatenate(
            [
                np.ones(5),
                np.full(networks, 2.0),
                np.full(networks, 0.7),
                np.full(2 * types, GPU_SD),
                np.full(2 * networks, NETWORK_SD),
            ]
        )
        return mean, sd

    def _step_s(self, x: Floats, rows: ScalingRows) -> Floats:
        networks, types = len(self._networks) + 1, len(self._types) + 1
        shared, scale, forward, by_type, by_network = np.split(
            x, np.cumsum([5, networks, networks, 2 * types])
        )
        net = _places(rows.network, self._networks)
        kind = _places(rows.gpu, self._types)
        packed = rows.packed.astype(float)
        ring = np.log(2.0 * (rows.gpus - 1.0) / rows.gpus)
        departure = by_network.reshape(networks, 2)[net]
        log_sync = (
            scale[net]
            + packed * (shared[0] + shared[1] * ring)
            + (1.0 - packed) * (shared[2] + shared[3] * ring + departure[:, 0])
            + departure[:, 1] * ring
            + by_type.reshape(types, 2)[kind, (1 - packed).astype(int)]
        )
        step = step_s(
            rows.alone_s,
            np.exp(log_sync),
            forward_share=1.0 / (1.0 + np.exp(-forward[net])),
            sharpness=1.0 + np.exp(np.clip(shared[4], -3.0, 3.0)),
        )
        return np.asarray(step, dtype=np.float64)


def _places(names: NDArray[np.str_], known: list[str]) -> NDArray[np.intp]:
    place = {name: i for i, name in enumerate(known)}
    return np.array([place.get(name, len(known)) for name in names.tolist()], dtype=np.intp)
