"""What holds for every test: no skip as root that no list names; those that wait come first."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from skips import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# How long an example takes says how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# Several workers take the tests one by one: the long ones first, or one would be left to wait.
FIRST = ("slurm", "tensorflow", "mpi")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def kind(item: pytest.Item) -> int:
        named = [index for index, name in enumerate(FIRST) if item.get_closest_marker(name)]
        return min(named, default=len(FIRST))

    items.sort(key=kind)
