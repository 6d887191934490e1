"""What holds for every test: no skip as root that no list names; those that wait come first."""

from __future__ import annotations

import functools
import gc
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from skips import pytest_make_collect_report, pytest_runtest_makereport

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# How long an example takes says how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell that starts us with `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Several workers take the tests one by one: the long ones first, or one would be left to wait.
MADE_ONCE = ("with_tensorflow",)
WAITING = "tests/cluster/"
FIRST = ("slurm", "tensorflow", "mpi")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def kind(item: pytest.Item) -> int:
        named = [index for index, name in enumerate(FIRST) if item.get_closest_marker(name)]
        return min(named, default=len(FIRST))

    items.sort(key=kind)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was collected stays: the collector need not walk it again and again


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """One test at a time to each worker, in order. Two workers of three begin with what waits
    for Slurm, so that the others have the cores meanwhile. Files whose tests use a thing that
    takes long to make go to one worker together."""
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def shared(file: str) -> str:
        text = (config.rootpath / file).read_text()
        return next((name for name in MADE_ONCE if name in text), "")

    class InOrder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared(nodeid.partition("::")[0]) or nodeid

        def _assign_work_unit(self, node: WorkerController) -> None:
            waits = self.nodes.index(node) < 2 * len(self.nodes) // 3
            fits = (one for one in self.workqueue if one.startswith(WAITING) is waits)
            if (scope := next(fits, None)) is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return InOrder(config, log)
