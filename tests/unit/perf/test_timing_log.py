"""The timing log: what goes in comes out, and a kill -9 at any moment loses no flushed row."""

from __future__ import annotations

import dataclasses
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from plans import example_plan
from sbtrain_perf.errors import MissingExtraError, TimingLogError
from sbtrain_perf.request import Role
from sbtrain_perf.timing_log import TimingLog, read_timing_log

KILLS = 40


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "attempts/2/timings.h5"
    with TimingLog.create(path, plan=example_plan(), attempt=2) as log:
        log.phase("queue", 3.5, at_s=1000.0)
        log.phase("stage", 1.25, at_s=1003.5, size_bytes=5_000_000)
        log.phase("start", 9.0, at_s=1005.0, parameters=77_850, tensors=30, step=None)
        log.steps(1, 1, [0.9, 0.11, 0.12], 32)
        log.steps(0, 1, [0.8, 0.1], 32)
        log.steps(0, 3, [0.13], 32)
        log.phase("checkpoint", 0.5, at_s=1015.0, size_bytes=600_000, step=3, loss=0.25)
    timings = read_timing_log(path)
    assert timings.plan == example_plan()
    assert timings.attempt == 2
    assert [(p.name, p.seconds, p.at_s) for p in timings.phases] == [
        ("queue", 3.5, 1000.0),
        ("stage", 1.25, 1003.5),
        ("start", 9.0, 1005.0),
        ("checkpoint", 0.5, 1015.0),
    ]
    assert timings.described("parameters") == 77_850.0
    assert timings.described("loss") == 0.25
    assert timings.described("nothing") is None
    assert "step" not in timings.named("start")[0].numbers
    first, second = timings.ranks
    assert (first.rank, second.rank) == (0, 1)
    assert first.step.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(first.seconds, [0.8, 0.1, 0.13])
    assert second.seconds.tolist() == [0.9, 0.11, 0.12]
    assert first.samples_per_step == 32
    assert (timings.workload, timings.layout, timings.nodes) == ("train_digits", "allreduce", 2)
    assert (timings.cluster, timings.partition) == ("private", "spot")
    assert timings.prediction == example_plan().prediction
    assert timings.run_id == example_plan().run_id


def test_a_log_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "timings.h5"
    log = TimingLog.create(path, plan=example_plan(), attempt=1)
    assert read_timing_log(path).phases == ()
    log.phase("queue", 1.0, at_s=0.0)
    assert read_timing_log(path).phases == ()
    log.flush()
    assert [p.name for p in read_timing_log(path).phases] == ["queue"]
    log.close()


def test_many_steps_are_written_before_anyone_asks(tmp_path: Path) -> None:
    path = tmp_path / "timings.h5"
    log = TimingLog.create(path, plan=example_plan(), attempt=1)
    for first in range(1, 10_001, 100):
        log.steps(0, first, [0.1] * 100, 8)
    (rank,) = read_timing_log(path).ranks
    assert len(rank.step) >= 5_000
    log.close()
    (rank,) = read_timing_log(path).ranks
    assert rank.step.tolist() == list(range(1, 10_001))


def test_the_file_is_private_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "timings.h5"
    TimingLog.create(path, plan=example_plan(), attempt=1).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["timings.h5"]


def test_a_plan_of_many_nodes_fits(tmp_path: Path) -> None:
    roles = tuple(Role(name="worker", index=i, node=i) for i in range(10_000))
    plan = dataclasses.replace(example_plan(), roles=roles, nodes=10_000, workers=10_000)
    path = tmp_path / "timings.h5"
    TimingLog.create(path, plan=plan, attempt=1).close()
    assert read_timing_log(path).plan == plan


WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import h5py
from plans import example_plan
from sbtrain_perf.timing_log import TimingLog

def write(path, acked):
    log = TimingLog.create(path, plan=example_plan(), attempt=1)
    step = phases = 0
    os.pwrite(acked, b"%12d%12d" % (step, phases), 0)
    chance = random.Random(os.getpid())
    while True:
        rows = chance.randint(1, 2000)
        log.steps(step % 3, step + 1, [0.5] * rows, 32)
        step += rows
        if chance.random() < 0.5:
            log.phase("checkpoint", 1.0, at_s=float(step), size_bytes=step)
            phases += 1
        log.flush()
        os.pwrite(acked, b"%12d%12d" % (step, phases), 0)

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(20261130)
for i in range(kills):
    acked = os.open(folder / f"{i}.acked", os.O_RDWR | os.O_CREAT)
    child = os.fork()
    if child == 0:
        try:
            write(folder / f"{i}.h5", acked)
        finally:
            os._exit(70)
    if i % 8:  # every eighth is killed while the file is made
        deadline = time.monotonic() + 30
        while not int(os.pread(acked, 12, 0) or 0) and time.monotonic() < deadline:
            time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.12))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
"""


def test_a_kill_at_any_moment_loses_no_flushed_row(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path), str(KILLS)],
        check=True,
        timeout=120,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    written = 0
    for i in range(KILLS):
        path = tmp_path / f"{i}.h5"
        acked = (tmp_path / f"{i}.acked").read_text()
        if not path.exists():
            assert acked == ""
            continue
        timings = read_timing_log(path)
        steps, phases = (int(acked[:12]), int(acked[12:])) if acked else (0, 0)
        held = sorted(step for rank in timings.ranks for step in rank.step.tolist())
        assert held[:steps] == list(range(1, steps + 1))
        assert len(timings.phases) >= phases
        assert all(p.numbers["size_bytes"] == p.at_s for p in timings.phases)
        assert all((rank.seconds == 0.5).all() for rank in timings.ranks)
        written += steps > 0
    assert written >= 30


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "timings.h5"
    TimingLog.create(path, plan=example_plan(), attempt=1).close()
    before = path.read_bytes()
    with pytest.raises(TimingLogError, match="there already"):
        TimingLog.create(path, plan=example_plan(), attempt=1)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TimingLogError, match="cannot make the timing log") as caught:
        TimingLog.create(tmp_path / "file/timings.h5", plan=example_plan(), attempt=1)
    assert caught.value.exit_code == 4


def test_a_full_disk_is_a_typed_error() -> None:
    with pytest.raises(TimingLogError):
        TimingLog.create(Path("/dev/full/timings.h5"), plan=example_plan(), attempt=1)


def test_what_is_no_timing_log_is_a_typed_error(tmp_path: Path) -> None:
    import h5py

    with pytest.raises(TimingLogError, match="there is no timing log"):
        read_timing_log(tmp_path / "none.h5")
    noise = tmp_path / "noise.h5"
    noise.write_bytes(b"\x00" * 4096)
    with pytest.raises(TimingLogError, match="is not a timing log"):
        read_timing_log(noise)
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["x"] = [1]
    with pytest.raises(TimingLogError, match="version 0"):
        read_timing_log(other)
    newer = tmp_path / "newer.h5"
    TimingLog.create(newer, plan=example_plan(), attempt=1).close()
    with h5py.File(newer, "r+") as file:
        file.attrs["schema"] = 99
    with pytest.raises(TimingLogError, match="version 99"):
        read_timing_log(newer)


def test_a_file_cut_short_is_an_error_or_yields_rows_that_are_whole(tmp_path: Path) -> None:
    """HDF5 reads nothing but zeros past the end of such a file."""
    path = tmp_path / "timings.h5"
    with TimingLog.create(path, plan=example_plan(), attempt=1) as log:
        log.steps(0, 1, [0.1] * 5000, 32)
    whole = path.read_bytes()
    errors = 0
    for size in range(1, len(whole), len(whole) // 100):
        path.write_bytes(whole[:size])
        try:
            timings = read_timing_log(path)
        except TimingLogError:
            errors += 1
        else:
            assert len(timings.ranks) <= 1  # none where the cut took the list of ranks
            for rank in timings.ranks:
                assert (rank.seconds == 0.1).all()
                assert rank.step.tolist() == list(range(1, len(rank.step) + 1))
    assert errors > 0


def test_a_file_whose_plan_is_no_plan_is_a_typed_error(tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "timings.h5"
    TimingLog.create(path, plan=example_plan(), attempt=1).close()
    with h5py.File(path, "r+") as file:
        file["plan"][:10] = 0
    with pytest.raises(TimingLogError, match="not a plan"):
        read_timing_log(path)


@pytest.mark.parametrize(
    ("name", "seconds", "numbers"),
    [
        ("coffee", 1.0, {}),
        ("stage", float("nan"), {}),
        ("stage", float("inf"), {}),
        ("stage", 1.0, {"x" * 2000: 1.0}),
    ],
)
def test_a_phase_that_cannot_be_is_refused_and_harms_nothing(
    tmp_path: Path, name: str, seconds: float, numbers: dict[str, float]
) -> None:
    path = tmp_path / "timings.h5"
    with TimingLog.create(path, plan=example_plan(), attempt=1) as log:
        with pytest.raises(TimingLogError):
            log.phase(name, seconds, at_s=0.0, **numbers)
        with pytest.raises(TimingLogError):
            log.steps(0, 0, [1.0], 1)
        log.phase("start", 2.0, at_s=0.0, loss=float("nan"), accuracy=0.5)
    (phase,) = read_timing_log(path).phases
    assert phase.numbers == {"accuracy": 0.5}


def test_without_h5py_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match="h5py") as caught:
        read_timing_log(tmp_path / "timings.h5")
    assert caught.value.hint.endswith("# the extra perf")
