"""What the examples of this folder train on: scikit-learn's handwritten digits in batches, and
the options that all of them have."""

import argparse
import os
import time
from pathlib import Path

BATCH = 32  # of each process
RATE = 0.5
PIXELS, CLASSES = 64, 10


def options(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=0.0, help="slow steps down")
    parser.add_argument("--fail-at", type=int, help="end with exit status 3 after this step")
    folder = Path(os.environ.get("SBTRAIN_CHECKPOINT_DIR", "checkpoints"))
    parser.add_argument("--checkpoints", type=Path, default=folder)
    found = parser.parse_args()
    found.checkpoints.mkdir(parents=True, exist_ok=True)
    return found


class Digits:
    """Batches of one process of `world`: in every step all of them take `world * BATCH` images
    together, the same ones however many they are."""

    def __init__(self, rank: int, world: int) -> None:
        import numpy as np
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(images))
        self._images = (images[order] / 16.0).astype("float32")
        self._labels = labels[order].astype("int64")
        self._rank, self._world = rank, world

    def batch(self, step: int):
        first = ((step - 1) * self._world + self._rank) * BATCH
        rows = [row % len(self._images) for row in range(first, first + BATCH)]
        return self._images[rows], self._labels[rows]


def tell(step: int, loss: float, asked: argparse.Namespace) -> None:
    """A line on the first ten steps, and on each fiftieth."""
    if step <= 10 or step % 50 == 0 or step == asked.steps:
        print(f"step {step} of {asked.steps}: loss {loss:.6f}", flush=True)
    time.sleep(asked.step_ms / 1000)
    if step == asked.fail_at:
        raise SystemExit(3)
