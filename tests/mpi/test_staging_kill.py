"""Staging killed at random moments, then started again: equal trees and no stray file."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mpi_environment import environment
from sbtrain_jobs.process import end_session, start_process
from staging_trees import snapshot, stray_names, write_file, write_odd_tree

pytestmark = pytest.mark.mpi
NODES = 3
SEED = 20261130


def descendants(pid: int) -> list[int]:
    """A process and all that it started, as far as they are still its children."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def kill_within(
    nodes, tree: Path, *, share: tuple[str, str], after_s: float, chance: random.Random
) -> bool:
    """Start staging, kill one or all of its processes; whether it was still running."""
    argv = nodes.argv(NODES, nodes.run_arguments(tree, extra=share), programs={})
    quiet = subprocess.DEVNULL
    process = start_process(argv, env=environment(), stderr=quiet, stdout=quiet)
    try:
        time.sleep(after_s)
        running = process.poll() is None
        everyone = descendants(process.pid)
        victims = everyone if chance.random() < 0.5 else [chance.choice(everyone)]
        for pid in victims if running else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait(timeout=60)
        return running
    finally:
        end_session(process)
        process.wait()


def trial(nodes, tree: Path, *, longest_s: float, chance: random.Random) -> bool:
    """One kill and one rerun, from a state that earlier trials left or from nothing, with
    data moved between the nodes or linked."""
    if chance.random() < 0.5:
        for rank in range(NODES):
            shutil.rmtree(nodes.cache(rank), ignore_errors=True)
    else:
        number = chance.randrange(200)
        write_file(
            tree / "images" / f"{number % 7}" / f"{number}.jpg", 999, seed=time.time_ns()
        )
    share = ("--share", chance.choice(("auto", "never")))
    after_s = chance.uniform(0.05, longest_s)
    running = kill_within(nodes, tree, share=share, after_s=after_s, chance=chance)
    report = nodes.stage(NODES, tree, extra=share)
    expected = snapshot(tree)
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == expected
        assert stray_names(nodes.cache(rank)) == []
    return running


@pytest.mark.parametrize(
    "trials", [2, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_any_kill_leaves_nothing_half_visible(nodes, tmp_path: Path, trials: int) -> None:
    chance = random.Random(SEED)
    tree = write_odd_tree(tmp_path / "tree")
    started = time.monotonic()
    nodes.stage(NODES, tree)
    longest_s = time.monotonic() - started
    tried = hits = 0
    while tried < trials or (hits < trials // 2 and tried < 4 * trials):
        hits += trial(nodes, tree, longest_s=longest_s, chance=chance)
        tried += 1
    assert hits >= trials // 2
