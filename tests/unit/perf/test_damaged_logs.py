"""A timing log that the disk has damaged is refused at once, and never waited for."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_perf.errors import TimingLogError
from sbtrain_perf.timing_log import TimingLog, read_timing_log

SOON_S = 30.0  # HDF5 would wait for ever


def log_bytes(path: Path, *, closed: bool) -> bytes:
    """A log of 2 x 500 steps, as its writer left it or still has it open."""
    log = TimingLog.create(path, plan=example_plan(), attempt=1)
    log.phase("start", 9.0, at_s=0.0, parameters=77_850)
    for rank in (0, 1):
        log.steps(rank, 1, [0.1] * 500, 32)
    log.flush()
    if closed:
        log.close()
    whole = path.read_bytes()
    if not closed:
        log.close()
    return whole


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize("seed", range(4))
def test_300_flipped_bytes_are_refused_at_once(tmp_path: Path, seed: int, closed: bool) -> None:
    damaged = bytearray(log_bytes(tmp_path / "timings.h5", closed=closed))
    chance = random.Random(seed)
    for _ in range(300):
        damaged[chance.randrange(len(damaged))] ^= 255
    path = tmp_path / "damaged.h5"
    path.write_bytes(damaged)
    begin_s = time.monotonic()
    with pytest.raises(TimingLogError, match="is not a timing log, or is damaged"):
        read_timing_log(path)
    assert time.monotonic() - begin_s < SOON_S


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_one_flipped_byte_anywhere_in_the_first_blocks(tmp_path: Path, closed: bool) -> None:
    """Each is found damaged, or does not matter; none is waited for."""
    whole = log_bytes(tmp_path / "timings.h5", closed=closed)
    path = tmp_path / "damaged.h5"
    begin_s = time.monotonic()
    refused = 0
    for at in range(0, 48, 5):
        damaged = bytearray(whole)
        damaged[at] ^= 255
        path.write_bytes(damaged)
        try:
            read_timing_log(path)
        except TimingLogError:
            refused += 1
    assert refused == 10
    assert time.monotonic() - begin_s < 2 * SOON_S


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_log_cut_short_is_refused(tmp_path: Path, closed: bool) -> None:
    whole = log_bytes(tmp_path / "timings.h5", closed=closed)
    path = tmp_path / "cut.h5"
    for size in (0, 11, 47, 48, len(whole) // 4):
        path.write_bytes(whole[:size])
        with pytest.raises(TimingLogError, match="damaged"):
            read_timing_log(path)


def test_a_log_left_open_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "left.h5"
    path.write_bytes(log_bytes(tmp_path / "timings.h5", closed=False))
    timings = read_timing_log(path)
    assert [len(rank.step) for rank in timings.ranks] == [500, 500]
    assert timings.described("parameters") == 77_850.0


def test_damage_is_not_taken_for_a_newer_format(tmp_path: Path) -> None:
    whole = log_bytes(tmp_path / "timings.h5", closed=True)
    path = tmp_path / "damaged.h5"
    chance, said = random.Random(5), list[str]()
    for _ in range(300):
        damaged = bytearray(whole)
        at = chance.randrange(4096) if chance.random() < 0.7 else chance.randrange(len(whole))
        damaged[at] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read_timing_log(path)
        except TimingLogError as error:
            said.append(error.message)
    assert len(said) > 50
    assert not any("HDF5 2.0 or newer" in message for message in said)
