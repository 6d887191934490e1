#!/usr/bin/env python3
"""Writes scikit-learn's handwritten digits (1,797 real images of 8x8) as one HDF5 file.

    python digits_data.py digits.h5

Datasets: x_train, x_test (n, 8, 8, 1) float32 in [0, 1]; y_train, y_test (n,) int64.
A fifth of each class is the test part; the split is the same every time.
"""

import argparse
import os
from pathlib import Path


def write_digits(target: Path) -> None:
    import h5py
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images[..., None] / 16.0).astype("float32")
    labels = digits.target.astype("int64")
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    with h5py.File(unfinished, "w") as file:
        parts = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
        for name, values in parts.items():
            file.create_dataset(name, data=values)
    unfinished.replace(target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("path", nargs="?", type=Path, default=Path("digits.h5"))
    path = parser.parse_args().path
    write_digits(path)
    print(f"{path}: {path.stat().st_size:,} bytes")
