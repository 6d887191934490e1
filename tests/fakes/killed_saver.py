"""Saves checkpoints in children that are killed, and looks at what each left behind.

    python killed_saver.py FOLDER lines          kill -9 before every line of the store's code
    python killed_saver.py FOLDER times COUNT    kill -9 at COUNT moments spread over a save
    python killed_saver.py FOLDER damaged        kill -9 before lines of an attempt that finds
                                                 20 and 30 damaged, resumes from 10 and
                                                 saves 12 and 18

Prints one JSON object: kills, saved (children that had published), kept (that had not).
Exits with a traceback as soon as a child left anything that must not be.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from sbtrain_jobs.training import checkpoint, manifest
from sbtrain_jobs.training.checkpoint import Checkpoint, CheckpointStore
from sbtrain_staging import publish

TRACED = {checkpoint.__file__, manifest.__file__, publish.__file__}
STRIDE = 7  # of some 2,600 lines
SIZES = {"state.bin": 200_000, "parts/a.bin": 5_000, "parts/b.bin": 0}


def save_step(step: int, *, scale: int) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        (folder / "parts").mkdir()
        for name, size in SIZES.items():
            (folder / name).write_bytes(bytes([step % 256]) * (size * scale))

    return save


def check(found: Checkpoint, *, scale: int) -> None:
    for name, size in SIZES.items():
        expected = bytes([found.step % 256]) * (size * scale)
        assert (found.path / name).read_bytes() == expected, (found.path, name)


def die_before_line(number: int) -> None:
    """Kill this process before it runs the number-th line of the store's code."""
    left = number

    def on_line(frame: FrameType, event: str, _: object) -> object:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame: FrameType, _event: str, _: object) -> object:
        return on_line if frame.f_code.co_filename in TRACED else None

    sys.settrace(on_call)  # type: ignore[arg-type]


def killed_child(act: Callable[[], object], *, line: int, after_s: float = 0.0) -> bool:
    """Act in a child; False when it was too late to kill it."""
    pid = os.fork()
    if pid == 0:
        try:
            if line:
                die_before_line(line)
            act()
        finally:
            os._exit(0)
    if not line:
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def look(store: CheckpointStore, step: int, *, scale: int) -> bool:
    """Whether `step` is published; anything half done that is visible is an error."""
    steps = store.steps()
    assert len(steps) >= 2, steps
    for visible in steps:
        found = store.valid(visible)
        assert found is not None, f"step {visible} is visible and torn"
        check(found, scale=scale)
    newest = store.newest_valid()
    assert newest is not None
    assert newest.step in (step - 1, step), newest
    return newest.step == step


def recover(store: CheckpointStore, step: int, *, scale: int) -> None:
    """What the next attempt does: clean, save that step."""
    store.clean_leftovers(sole_writer=True)
    assert not [e for e in store.folder.iterdir() if e.name.startswith(".")]
    store.write(step, save_step(step, scale=scale))
    assert store.steps()[-2:] == (step - 1, step)


def killed_amid_damage(folder: Path) -> int:
    """Kill before every STRIDE-th line of such an attempt; how many kills there were."""
    before = CheckpointStore(folder.with_name("before"), keep=3)
    for step in (10, 20, 30):
        before.write(step, save_step(step, scale=1))
    for step in (20, 30):
        with (before.path_of(step) / "state.bin").open("r+b") as stream:
            stream.write(b"not what was saved")
    kills = 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before.folder, folder)
        if not killed_child(lambda: attempt_on(folder), line=kills * STRIDE + 1):
            return kills
        kills += 1
        found = CheckpointStore(folder).newest_valid(set_aside=True)
        assert found is not None
        assert found.step in (10, 12, 18), found
        check(found, scale=1)
        names = {entry.name.removeprefix("damaged-") for entry in folder.iterdir()}
        assert {"step-20", "step-30"} <= names, names


def attempt_on(folder: Path) -> None:
    store = CheckpointStore(folder)
    assert store.newest_valid(set_aside=True)
    for step in (12, 18):
        store.write(step, save_step(step, scale=1))


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[2] == "damaged":
        sys.stdout.write(json.dumps({"kills": killed_amid_damage(Path(sys.argv[1]))}) + "\n")
        return
    store, mode = CheckpointStore(Path(sys.argv[1])), sys.argv[2]
    scale = 1 if mode == "lines" else 40
    began = time.perf_counter()
    for step in (1, 2, 3):
        store.write(step, save_step(step, scale=scale))
    usual_s = (time.perf_counter() - began) / 3
    moments = random.Random(1)
    count = 10**6 if mode == "lines" else int(sys.argv[3])
    kills = saved = 0
    for number in range(1, count + 1):
        step = number + 3
        line = number if mode == "lines" else 0
        after_s = moments.uniform(0, 1.2 * usual_s)
        killed = killed_child(
            lambda step=step: store.write(step, save_step(step, scale=scale)),
            line=line,
            after_s=after_s,
        )
        kills += killed
        saved += look(store, step, scale=scale)
        recover(store, step, scale=scale)
        if mode == "lines" and not killed:
            break
    sys.stdout.write(
        json.dumps({"kills": kills, "saved": saved, "kept": number - saved}) + "\n"
    )


if __name__ == "__main__":
    main()
