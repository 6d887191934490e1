"""A skip is a failure where the suite runs as root, unless tests/allowed_skips.py names it.

A plugin of pytest: tests/conftest.py has its hooks.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

import allowed_skips

Report = pytest.TestReport | pytest.CollectReport


def judged(report: Report) -> Report:
    """The report, made a failure where it tells of a skip that nothing allows."""
    if report.skipped and not hasattr(report, "wasxfail") and os.geteuid() == 0:
        told = report.longrepr
        words = told[2] if isinstance(told, tuple) else str(told)
        reason = words.removeprefix("Skipped: ")
        if not allowed_skips.allows(report.nodeid, reason):
            report.outcome = "failed"
            report.longrepr = (
                f"skipped as root: {reason}\n"
                "Install what it needs (.ci/prepare-system), or name it with the reason in "
                "tests/allowed_skips.py."
            )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Report, Report]:
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Report, Report]:
    return judged((yield))
