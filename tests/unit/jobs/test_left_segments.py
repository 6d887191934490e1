"""Shared memory of MPICH that nobody uses any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sbtrain_jobs.node_agent.left_segments import YOUNG_S, remove_left_segments


def test_what_is_old_and_mapped_by_nobody_goes(tmp_path: Path) -> None:
    shared, processes = tmp_path / "shm", tmp_path / "proc"
    shared.mkdir()
    old_s = time.time() - YOUNG_S - 1.0
    for name in ("mpich_shm_1_0", "mpich_shm_2_0", "mpich_shm_3_1", "other_4_0"):
        (shared / name).write_bytes(b"x")
        if name != "mpich_shm_3_1":
            os.utime(shared / name, (old_s, old_s))
    (processes / "17").mkdir(parents=True)
    (processes / "self").mkdir()
    (processes / "17" / "maps").write_text(
        f"7f00-7f01 r--p 00000000 00:15 99 /lib/libc.so.6\n7f02-7f03 rw-p 00000000 00:00 0\n"
        f"7f04-7f05 rw-s 00000000 00:19 12                     {shared}/mpich_shm_2_0\n"
    )
    assert remove_left_segments(shared, processes) == 1
    left = sorted(path.name for path in shared.iterdir())
    assert left == ["mpich_shm_2_0", "mpich_shm_3_1", "other_4_0"]
    assert remove_left_segments(shared, processes) == 0


def test_a_node_without_any_is_left_alone(tmp_path: Path) -> None:
    assert remove_left_segments(tmp_path, tmp_path / "none") == 0
