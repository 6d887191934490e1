"""Scaling over GPUs: recovered from the form, cautious about what was not fitted."""

from __future__ import annotations

import numpy as np
import pytest

from sbtrain_perf.fitting.multi_gpu import MultiGpuModel, ScalingRows
from sbtrain_perf.models.overlap import step_s

SENT = {"heavy": 0.12, "light": 0.01}
COMPUTE = {"K80": 0.30, "P100": 0.10}


def made_rows(*, noise: float = 0.01) -> ScalingRows:
    generator = np.random.default_rng(5)
    cells = [
        (net, gpu, n, packed, batch)
        for net in SENT
        for gpu in COMPUTE
        for n in (2.0, 4.0, 8.0)
        for packed in (True, False)
        for batch in (1.0, 2.0)
    ]
    gpus = np.array([n for _, _, n, _, _ in cells])
    alone = np.array([COMPUTE[gpu] * batch for _, gpu, _, _, batch in cells])
    sync = np.array([SENT[net] * (1 if packed else 2) for net, _, _, packed, _ in cells])
    step = step_s(alone, sync * 2 * (gpus - 1) / gpus, forward_share=0.3, sharpness=1.2)
    return ScalingRows(
        network=np.array([net for net, *_ in cells]),
        gpu=np.array([gpu for _, gpu, *_ in cells]),
        gpus=gpus,
        packed=np.array([packed for *_, packed, _ in cells]),
        alone_s=alone,
        step_s=np.asarray(step) * np.exp(noise * generator.standard_normal(len(cells))),
    )


def test_eight_gpus_from_two_and_four() -> None:
    rows = made_rows()
    asked = rows.where(rows.gpus == 8)
    step, _ = MultiGpuModel(rows.where(rows.gpus < 8)).predict(asked)
    assert float(np.mean(np.abs(step / asked.step_s - 1))) < 0.05


def test_an_unknown_gpu_type_has_the_wider_interval() -> None:
    rows = made_rows()
    model = MultiGpuModel(rows.where(rows.gpu == "K80"))
    _, known_sd = model.predict(rows.where(rows.gpu == "K80"))
    _, unknown_sd = model.predict(rows.where(rows.gpu == "P100"))
    assert unknown_sd.mean() > 1.3 * known_sd.mean()


def test_no_rows_are_refused() -> None:
    rows = made_rows()
    with pytest.raises(ValueError, match="no multi-GPU rates"):
        MultiGpuModel(rows.where(np.zeros(len(rows), dtype=bool)))
