"""What tests of the wing share: what takes long to make, and a folder in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from preloaded import PreloadedParent, preloaded


@pytest.fixture(scope="session")
def with_tensorflow() -> Iterator[PreloadedParent]:
    """Starts programs that have imported TensorFlow already."""
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    with preloaded("keras") as parent:  # with all of TensorFlow
        yield parent


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a kill does not lose what the kernel holds, so
    that flushing to a disk would only cost time."""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared_memory) as folder:
        yield Path(folder)
