"""`sbtrainctl status` is right in every written end; see tests/written_ends.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from end_records import WrittenEnd, differences, status_of
from written_ends import WRITTEN_ENDS


@pytest.mark.parametrize("end", WRITTEN_ENDS, ids=lambda end: end.injected)
def test_status_is_right(end: WrittenEnd, tmp_path: Path) -> None:
    assert differences(end, status_of(end, tmp_path)) == []


def test_the_written_ends_are_many_and_each_is_another() -> None:
    assert len({end.injected for end in WRITTEN_ENDS}) == len(WRITTEN_ENDS) >= 40
