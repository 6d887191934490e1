"""What tests of the wing share that takes long to make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorflow_once import TensorFlowParent, tensorflow_parent


@pytest.fixture(scope="session")
def with_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorFlowParent]:
    """Starts programs that have imported TensorFlow already."""
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    with tensorflow_parent(tmp_path_factory.mktemp("tensorflow")) as parent:
        yield parent
