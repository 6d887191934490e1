"""Checkpoints found damaged: what stays, what is set aside, and when a run must stop."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sbtrain_jobs.errors import CheckpointError
from sbtrain_jobs.process import run_command
from sbtrain_jobs.training.checkpoint import MOST_SET_ASIDE, CheckpointStore
from sbtrain_jobs.training.manifest import MANIFEST
from sbtrain_jobs.training.session import join

KILLED_SAVER = Path(__file__).parents[2] / "fakes" / "killed_saver.py"


def save(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"w" * 1000)


def flip(checkpoint: Path) -> None:
    content = bytearray((checkpoint / "weights.bin").read_bytes())
    content[500] ^= 1
    (checkpoint / "weights.bin").write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "cut": lambda checkpoint: os.truncate(checkpoint / "weights.bin", 10),
    "file gone": lambda checkpoint: (checkpoint / "weights.bin").unlink(),
    "manifest gone": lambda checkpoint: (checkpoint / MANIFEST).unlink(),
    "manifest cut": lambda checkpoint: os.truncate(checkpoint / MANIFEST, 10),
    "manifest of nests": lambda checkpoint: (checkpoint / MANIFEST).write_text("[" * 10**6),
    "folder for a file": lambda checkpoint: (
        (checkpoint / "weights.bin").unlink(),
        (checkpoint / "weights.bin").mkdir(),
    ),
    "empty": lambda checkpoint: (shutil.rmtree(checkpoint), checkpoint.mkdir()),
    "a file": lambda checkpoint: (shutil.rmtree(checkpoint), checkpoint.write_text("x")),
}


def written(folder: Path, *steps: int) -> CheckpointStore:
    """Checkpoints of an earlier attempt."""
    store = CheckpointStore(folder, keep=max(2, len(steps)))
    for step in steps:
        store.write(step, save)
    return CheckpointStore(folder)


def names(store: CheckpointStore) -> list[str]:
    return sorted(entry.name for entry in store.folder.iterdir())


@pytest.mark.parametrize("how", sorted(DAMAGE))
def test_what_was_just_saved_stays_whatever_newer_ones_are_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    store = written(tmp_path, 10, 20, 30)
    for step in (20, 30):
        DAMAGE[how](store.path_of(step))
    found = store.newest_valid(set_aside=True)
    assert found is not None
    assert found.step == 10
    said = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(": ")[2] for line in said] == [
        f"set aside as damaged-step-{step}" for step in (30, 20)
    ]
    for step, stay in ((12, (10, 12)), (18, (12, 18)), (25, (18, 25)), (31, (25, 31))):
        store.write(step, save)
        assert store.steps() == stay
    assert names(store)[:2] == ["damaged-step-20", "damaged-step-30"]
    assert len(caplog.records) == 2


def test_what_was_just_saved_stays_where_nothing_is_set_aside(tmp_path: Path) -> None:
    """A script that resumes by other means, or not at all: nobody looked at 20 and 30."""
    store = written(tmp_path, 10, 20, 30)
    for step in (20, 30):
        flip(store.path_of(step))
    for step, stay in ((12, (10, 12, 20, 30)), (18, (12, 18, 20, 30)), (35, (18, 20, 30, 35))):
        store.write(step, save)
        assert store.steps() == stay
    store.write(40, save)
    assert store.steps() == (35, 40)


def test_older_damage_counts_for_nothing(tmp_path: Path) -> None:
    store = written(tmp_path, 10, 20, 30)
    flip(store.path_of(20))
    assert store.newest_valid(set_aside=True) == store.published(30)
    store.write(40, save)
    assert store.steps() == (30, 40)


def test_a_whole_one_that_the_ranks_did_not_agree_on_does_not_push_out_newer_saves(
    tmp_path: Path,
) -> None:
    """Another node does not see 20 and 30, so all go on from 10."""
    store = written(tmp_path, 10, 20, 30)
    assert store.newest_valid(set_aside=True) == store.published(30)
    assert store.valid(20)
    assert store.valid(10)
    for step, own in ((12, (10, 12)), (18, (12, 18)), (24, (18, 24))):
        store.write(step, save)
        assert set(own) <= set(store.steps())


def test_what_cannot_be_read_is_passed_over_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = written(tmp_path, 10, 20)
    real = Path.read_text

    def fails(path: Path, *args: object, **named: object) -> str:
        if path.parent.name == "step-20":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", fails)
    found = store.newest_valid(set_aside=True)
    assert found is not None
    assert found.step == 10
    assert "Input/output error): passed over" in caplog.text
    store.write(12, save)
    store.write(15, save)
    monkeypatch.undo()
    assert store.steps() == (12, 15, 20)


def test_damage_to_what_this_run_wrote_is_said_and_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = written(tmp_path)
    for step in (1, 2):
        store.write(step, save)
    os.truncate(store.path_of(2) / "weights.bin", 10)
    store.write(3, save)
    assert names(store) == ["damaged-step-2", "step-1", "step-3"]
    assert "weights.bin has 10 of 1000 bytes): set aside as damaged-step-2" in caplog.text


def test_what_another_run_publishes_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    ours, theirs = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    assert ours.newest_valid() is None
    assert theirs.newest_valid() is None
    for number in range(1, 6):
        ours.write(number * 10, save)
        theirs.write(number, save)
    assert ours.steps() == (4, 5, 40, 50)


def test_a_bound_on_what_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1, MOST_SET_ASIDE + 3):
        store = written(tmp_path, number * 10, number * 10 + 1)
        flip(store.path_of(number * 10 + 1))
        stamp = 1e9 + number
        for path in (store.path_of(number * 10 + 1), *store.path_of(number * 10 + 1).iterdir()):
            os.utime(path, (stamp, stamp))
        assert store.newest_valid(set_aside=True)
    aside = [name for name in names(store) if name.startswith("damaged-")]
    assert aside == [f"damaged-step-{number}1" for number in range(3, MOST_SET_ASIDE + 3)]
    assert caplog.text.count("set aside before") == 2


def test_the_same_step_damaged_again_gets_another_name(tmp_path: Path) -> None:
    for _ in range(3):
        store = written(tmp_path, 10, 20)
        flip(store.path_of(20))
        assert store.newest_valid(set_aside=True)
    assert [n for n in names(store) if n.startswith("damaged-")] == [
        "damaged-step-20",
        "damaged-step-20.2",
        "damaged-step-20.3",
    ]


def test_many_damaged_at_once_all_stay_to_be_looked_at(tmp_path: Path) -> None:
    steps = range(1, MOST_SET_ASIDE + 5)
    store = written(tmp_path, *steps)
    for step in steps[1:]:
        flip(store.path_of(step))
    assert store.newest_valid(set_aside=True) == store.published(1)
    assert len([name for name in names(store) if name.startswith("damaged-")]) == len(steps) - 1


def test_damage_that_cannot_be_renamed_still_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = written(tmp_path, 10, 20, 30)
    for step in (20, 30):
        flip(store.path_of(step))
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        if "damaged" in str(target):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    found = store.newest_valid(set_aside=True)
    assert found is not None
    assert found.step == 10
    assert caplog.text.count("passed over") == 2
    for step in (12, 18):
        store.write(step, save)
    assert store.steps() == (12, 18, 20, 30)


def test_kill_before_any_line_amid_damage_loses_nothing(memory_folder: Path) -> None:
    done = run_command(
        [sys.executable, str(KILLED_SAVER), str(memory_folder / "c"), "damaged"], timeout_s=240
    )
    assert json.loads(done.stdout)["kills"] > 200


# -- none is whole ---------------------------------------------------------------------


@pytest.mark.parametrize("how", sorted(DAMAGE))
def test_a_run_whose_checkpoints_are_all_damaged_stops_and_touches_nothing(
    tmp_path: Path, how: str
) -> None:
    store = written(tmp_path, 10, 20)
    for step in (10, 20):
        DAMAGE[how](store.path_of(step))
    for _ in range(2):  # a second try finds the same
        with pytest.raises(CheckpointError, match=r"no checkpoint in .* is whole") as caught:
            store.newest_valid(set_aside=True)
        assert "step-20: " in caught.value.message
        assert "step-10: " in caught.value.message
        assert "start anew from step 0" in caught.value.hint
        assert names(store) == ["step-10", "step-20"]


def test_the_last_one_that_is_left_is_damaged_too(tmp_path: Path) -> None:
    store = written(tmp_path, 10, 20)
    flip(store.path_of(20))
    assert store.newest_valid(set_aside=True)
    flip(store.path_of(10))
    with pytest.raises(CheckpointError, match="damaged-step-20 was set aside before"):
        store.newest_valid(set_aside=True)
    shutil.rmtree(store.path_of(10))
    with pytest.raises(CheckpointError, match="damaged-step-20 was set aside before"):
        store.newest_valid(set_aside=True)


def test_an_empty_folder_or_none_starts_at_0(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert CheckpointStore(folder).newest_valid(set_aside=True) is None


def test_what_a_writer_removes_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A rank that comes late to a fast chief: what it listed is gone, newer ones are there."""
    store, chief = written(tmp_path, 10), CheckpointStore(tmp_path)
    assert chief.newest_valid()
    real, done = CheckpointStore.steps, []

    def steps(self: CheckpointStore) -> tuple[int, ...]:
        listed = real(self)
        if self is store and not done:
            done.append(1)
            for step in (11, 12):
                chief.write(step, save)
        return listed

    monkeypatch.setattr(CheckpointStore, "steps", steps)
    found = store.newest_valid()
    assert found is not None
    assert found.step == 12
    assert not caplog.records


def test_join_says_it_with_a_code_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = written(tmp_path, 3, 4)
    for step in (3, 4):
        flip(store.path_of(step))
    run = join(default_steps=5, checkpoints=tmp_path, environ={})
    with contextlib.suppress(SystemExit), run:
        run.resume(lambda folder: None)
        pytest.fail("it went on")
    assert run.exit_code == CheckpointError.exit_code
    assert "sbtrain: no checkpoint in" in capfd.readouterr().err
    assert names(store) == ["step-3", "step-4"]


# -- saves that are none ---------------------------------------------------------------


def leaves(folder: Path) -> None:
    (folder / "half").write_text("x")
    raise SystemExit


def leaves_with_5(folder: Path) -> None:
    raise SystemExit(5)


def nothing(folder: Path) -> None:
    (folder / "empty").mkdir()


@pytest.mark.parametrize("interval_s", [3600.0, 1e-6], ids=["last", "periodic"])
@pytest.mark.parametrize(
    ("bad", "code"), [(leaves, CheckpointError.exit_code), (leaves_with_5, 5)]
)
def test_a_save_that_ends_the_process_is_a_failure(
    tmp_path: Path,
    interval_s: float,
    bad: Callable[[Path], None],
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: list[int] = []
    run = join(
        default_steps=4, checkpoints=tmp_path, checkpoint_interval_s=interval_s, environ={}
    )
    with contextlib.suppress(SystemExit), run:
        for step in run.steps(save=bad):
            ran.append(step)
    assert run.exit_code == code
    assert ran == ([1, 2, 3, 4] if interval_s > 1 else [1])
    assert not list(tmp_path.iterdir())


def test_an_empty_last_save_is_a_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = join(default_steps=2, checkpoints=tmp_path, environ={})
    with contextlib.suppress(SystemExit), run:
        list(run.steps(save=nothing))
    assert run.exit_code == CheckpointError.exit_code
    assert "saved nothing for step 2" in capfd.readouterr().err


def test_a_state_that_was_resumed_by_other_means_must_be_whole_to_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The script says where it starts; the checkpoint of that step is damaged."""
    store = written(tmp_path, 2, 4)
    flip(store.path_of(4))
    saved: list[Path] = []
    with join(default_steps=4, checkpoints=tmp_path, environ={}) as run:
        assert (
            list(run.steps(start=4, save=lambda folder: (saved.append(folder), save(folder))))
            == []
        )
    assert len(saved) == 1
    assert store.valid(4)
    assert "set aside as damaged-step-4" in caplog.text


def test_a_rank_that_comes_late_resumes_where_the_attempt_began(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    assert store.newest_valid(up_to=0) is None
    for step in (10, 20):
        store.write(step, save)
    found = CheckpointStore(tmp_path).newest_valid(up_to=10)
    assert found is not None
    assert found.step == 10
    assert CheckpointStore(tmp_path).newest_valid(up_to=0) is None
    store.write(30, save)  # of these two stay
    assert store.steps() == (20, 30)
    with pytest.raises(CheckpointError, match="step 10, from which the others began, is gone"):
        CheckpointStore(tmp_path).newest_valid(up_to=10)
