"""Checkpoints are whole or not there: kills, damage, full and read-only disks, rivals."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbtrain_jobs.errors import CheckpointError, CommandError
from sbtrain_jobs.process import run_command
from sbtrain_jobs.training.checkpoint import LEFTOVER_AFTER_S, MANIFEST, CheckpointStore
from sbtrain_staging.publish import TEMPORARY_MARK
from users import bound_by_permissions

KILLED_SAVER = Path(__file__).parents[2] / "fakes" / "killed_saver.py"


def save(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    (folder / "parts" / "optimiser.bin").write_bytes(b"o" * 500)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "runs" / "checkpoints")


def visible(store: CheckpointStore) -> list[str]:
    return sorted(entry.name for entry in store.folder.iterdir())


def test_what_is_written_is_found(store: CheckpointStore) -> None:
    assert store.newest_valid() is None
    written = store.write(7, save)
    assert written == store.newest_valid() == store.published(7)
    assert written.path == store.folder / "step-7"
    assert written.size_bytes == 1500
    assert (written.path / "parts" / "optimiser.bin").read_bytes() == b"o" * 500
    assert store.folder.stat().st_mode & 0o077 == 0


def test_steps_sort_by_number_and_strangers_are_left_alone(store: CheckpointStore) -> None:
    for step in (8, 9, 10):
        store.write(step, save)
    for stranger in ("step-11.bak", "step-", "step-²", "notes"):
        (store.folder / stranger).mkdir()
    assert store.steps() == (9, 10)
    newest = store.newest_valid()
    assert newest is not None
    assert newest.step == 10
    assert "notes" in visible(store)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rename_step(path: Path) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "step": 1}))


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("weights.bin", cut, "weights.bin has 500 of 1000 bytes"),
        ("weights.bin", flip, "weights.bin is not what was saved"),
        ("parts/optimiser.bin", Path.unlink, "parts/optimiser.bin is missing"),
        (MANIFEST, Path.unlink, "manifest.json is missing"),
        (MANIFEST, cut, "manifest.json is damaged"),
        (MANIFEST, flip, "manifest.json is damaged"),
        (MANIFEST, rename_step, "manifest.json is damaged"),
    ],
)
def test_a_damaged_newest_is_named_and_passed_over(
    store: CheckpointStore,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: object,
    said: str,
) -> None:
    older = store.write(1, save)
    newest = store.write(2, save)
    assert callable(damage)
    damage(newest.path / name)
    with caplog.at_level(logging.WARNING):
        assert store.newest_valid() == older
    (message,) = [record.getMessage() for record in caplog.records]
    assert str(newest.path) in message
    assert said in message
    assert store.write(2, save) == store.newest_valid()  # it makes way for a whole one


def test_a_checkpoint_under_another_name_is_not_trusted(store: CheckpointStore) -> None:
    written = store.write(1, save)
    written.path.rename(store.folder / "step-5")
    assert store.valid(5) is None


def test_files_that_came_later_do_not_hurt(store: CheckpointStore) -> None:
    written = store.write(1, save)
    (written.path / ".nfs0001").write_bytes(b"left by a file server")
    assert store.newest_valid() == written


def test_two_whole_ones_are_kept_and_damage_does_not_count(store: CheckpointStore) -> None:
    for step in (1, 2, 3):
        store.write(step, save)
    assert store.steps() == (2, 3)
    cut(store.path_of(3) / "weights.bin")
    store.write(4, save)
    assert store.steps() == (2, 4)
    store.write(5, save)
    assert store.steps() == (4, 5)
    assert visible(store) == ["damaged-step-3", "step-4", "step-5"]


def test_more_can_be_kept_but_not_fewer(tmp_path: Path) -> None:
    three = CheckpointStore(tmp_path, keep=3)
    for step in range(6):
        three.write(step, save)
    assert three.steps() == (3, 4, 5)
    with pytest.raises(CheckpointError, match="cannot keep 1"):
        CheckpointStore(tmp_path, keep=1)


def test_the_same_step_again_keeps_the_whole_one(store: CheckpointStore) -> None:
    first = store.write(3, save)

    def other(folder: Path) -> None:
        (folder / "other.bin").write_bytes(b"x")

    assert store.write(3, other) == first
    assert visible(store) == ["step-3"]


def test_everything_is_on_disk_before_it_gets_its_name(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        done.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        real_fsync(descriptor)

    def rename(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    store.write(4, save)
    published = done.index(("rename", "step-4"))
    temporary = [name for what, name in done[:published] if TEMPORARY_MARK in name]
    assert {name for _, name in done[:published]} == {
        "weights.bin", "optimiser.bin", MANIFEST, "parts", *temporary
    }  # fmt: skip
    assert len(temporary) == 1
    assert done[published - 1] == ("fsync", temporary[0])
    assert done[published + 1 :] == [("fsync", store.folder.name)]


def test_leftovers_are_never_read_and_cleaned_by_who_may(store: CheckpointStore) -> None:
    store.write(1, save)
    old, new = (store.folder / f".step-{n}{TEMPORARY_MARK}{n}" for n in (8, 9))
    for folder in (old, new):
        folder.mkdir()
        save(folder)
    for path in (old, *old.rglob("*")):
        stamp = path.stat().st_mtime - 2 * LEFTOVER_AFTER_S
        os.utime(path, (stamp, stamp))
    newest = store.newest_valid()
    assert newest is not None
    assert newest.step == 1
    assert store.clean_leftovers(sole_writer=False) == 1
    assert visible(store) == [new.name, "step-1"]
    assert store.clean_leftovers(sole_writer=True) == 1
    assert visible(store) == ["step-1"]


def test_a_save_that_fails_leaves_nothing(store: CheckpointStore) -> None:
    def fails(folder: Path) -> None:
        save(folder)
        raise ValueError("the script's own")

    store.write(1, save)
    with pytest.raises(ValueError, match="own"):
        store.write(2, fails)
    assert visible(store) == ["step-1"]


@pytest.mark.parametrize(
    ("saves", "said"),
    [
        (lambda folder: None, "saved nothing"),
        (lambda folder: (folder / "link").symlink_to("/etc/passwd"), "'link'"),
        (lambda folder: (folder / MANIFEST).write_text("{}"), "'manifest.json'"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused(
    store: CheckpointStore, saves: object, said: str
) -> None:
    assert callable(saves)
    with pytest.raises(CheckpointError, match=said) as caught:
        store.write(1, saves)
    assert caught.value.hint
    assert visible(store) == []


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    try:
        run_command(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], timeout_s=20)
    except CommandError as error:
        pytest.skip(f"cannot mount a small file system: {error.message}")
    try:
        yield folder
    finally:
        run_command(["umount", str(folder)], timeout_s=20)


def big(folder: Path) -> None:
    (folder / "big.bin").write_bytes(b"b" * 200_000)


def test_a_full_disk_is_said_and_the_older_one_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=320k") as disk:
        store = CheckpointStore(disk / "checkpoints")
        older = store.write(1, big)
        with pytest.raises(CheckpointError, match="No space left on device") as caught:
            store.write(2, big)
        assert "free space" in caught.value.hint
        assert store.newest_valid() == older
        assert visible(store) == ["step-1"]


def test_a_read_only_disk_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=320k") as disk:
        store = CheckpointStore(disk / "checkpoints")
        older = store.write(1, big)
        run_command(["mount", "-o", "remount,ro", str(disk)], timeout_s=20)
        with pytest.raises(CheckpointError, match="Read-only file system") as caught:
            store.write(2, save)
        assert "writable" in caught.value.hint
        assert store.newest_valid() == older


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.EDQUOT, "free space"), (errno.EIO, "filesystem")]
)
def test_a_disk_that_fails_while_flushing_is_said(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    older = store.write(1, save)

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(CheckpointError, match=os.strerror(number)) as caught:
        store.write(2, save)
    assert hint in caught.value.hint
    monkeypatch.undo()
    assert store.newest_valid() == older
    assert visible(store) == ["step-1"]


def test_a_forbidden_folder_is_said() -> None:
    with bound_by_permissions() as folder:
        folder.chmod(0o500)
        with pytest.raises(CheckpointError, match="Permission denied"):
            CheckpointStore(folder / "checkpoints").write(1, save)


def test_a_folder_that_can_be_written_passes_and_keeps_nothing_of_the_trial(
    store: CheckpointStore,
) -> None:
    store.check()
    assert list(store.folder.iterdir()) == []
    store.write(1, save)
    store.check()
    assert visible(store) == ["step-1"]


def test_a_file_in_the_folders_place_is_found_before_any_save(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    for folder in (tmp_path / "checkpoints", tmp_path / "checkpoints" / "run"):
        with pytest.raises(CheckpointError, match="cannot save checkpoints in") as caught:
            CheckpointStore(folder).check()
        assert "move the file" in caught.value.hint


@pytest.mark.parametrize(
    ("call", "number", "hint"),
    [
        ("fsync", errno.ENOSPC, "free space"),
        ("fsync", errno.EDQUOT, "free space"),
        ("mkdir", errno.EROFS, "make the folder writable"),
        ("rename", errno.EACCES, "make the folder writable"),
        ("rmdir", errno.EPERM, "make the folder writable"),
    ],
)
def test_every_act_of_a_save_is_tried_before_the_first(
    store: CheckpointStore,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    hint: str,
) -> None:
    store.folder.mkdir(parents=True)

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        with pytest.raises(CheckpointError) as caught:
            store.check()
    assert caught.value.hint.startswith(hint)
    store.clean_leftovers(sole_writer=True)
    assert not visible(store)


def test_rivals_in_one_folder_leave_only_whole_ones(store: CheckpointStore) -> None:
    failures: list[BaseException] = []

    def rival(offset: int) -> None:
        mine = CheckpointStore(store.folder)
        try:
            for step in range(offset, 40, 2):
                mine.write(step // 2, save)  # every step by two writers
                assert mine.newest_valid() is not None
        except BaseException as error:
            failures.append(error)

    rivals = [threading.Thread(target=rival, args=(n % 2,)) for n in range(4)]
    for thread in rivals:
        thread.start()
    for thread in rivals:
        thread.join()
    assert failures == []
    assert all(store.valid(step) is not None for step in store.steps())
    assert len(store.steps()) >= 2
    assert not [name for name in visible(store) if name.startswith(".")]


def test_kill_before_any_line_of_a_save_leaves_the_old_or_the_new(memory_folder: Path) -> None:
    done = run_command(
        [sys.executable, str(KILLED_SAVER), str(memory_folder / "c"), "lines"], timeout_s=240
    )
    counts = json.loads(done.stdout)
    assert counts["kills"] > 200
    assert counts["saved"] > 20
    assert counts["kept"] > 50


def test_kill_at_any_moment_of_a_big_save(memory_folder: Path) -> None:
    done = run_command(
        [sys.executable, str(KILLED_SAVER), str(memory_folder / "c"), "times", "25"],
        timeout_s=240,
    )
    counts = json.loads(done.stdout)
    assert counts["saved"] + counts["kept"] == 25
    assert counts["kills"] > 5
