"""What run.steps() costs a step: gate, clock and batched reports to a supervisor that
listens on the loopback. Bar: less than 20 us a step.

    python benchmarks/step_clock.py
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench_table import BenchRow, finish

from sbtrain_jobs.training.context import Defaults, TrainerContext, trainer_context
from sbtrain_jobs.training.session import Run

STEPS = 200_000
REPEATS = 5
BAR_US = 20.0


def main() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=swallow, args=(server,), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        bare = [bare_loop_us() for _ in range(REPEATS)]
        silent = [run_loop_us(control="") for _ in range(REPEATS)]
        reporting = [run_loop_us(control=address) for _ in range(REPEATS)]
    base = statistics.median(bare)
    yardstick = f"bare loop {base:.3f} us"
    added = {"no supervisor": silent, "a supervisor that is reported to": reporting}
    return finish(
        "step_clock",
        [
            BenchRow(
                what=f"us added to a step, {name}",
                yardstick=yardstick,
                value=statistics.median(times) - base,
                bar=BAR_US,
            )
            for name, times in added.items()
        ],
    )


def bare_loop_us() -> float:
    began = time.perf_counter()
    for _ in range(STEPS):
        pass
    return (time.perf_counter() - began) / STEPS * 1e6


def run_loop_us(*, control: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        seat = alone(Path(folder), control=control)
        with Run(seat, seed=0) as run:
            began = time.perf_counter()
            for _ in run.steps(save=nothing):
                pass
            spent_s = time.perf_counter() - began
        return spent_s / STEPS * 1e6


def alone(folder: Path, *, control: str) -> TrainerContext:
    import dataclasses

    seat = trainer_context({}, Defaults(steps=STEPS, checkpoint_folder=folder))
    return dataclasses.replace(seat, control=control)


def nothing(folder: Path) -> None:
    (folder / "state").write_bytes(b"")


def swallow(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while connection.recv(1 << 16):
                pass


if __name__ == "__main__":
    sys.exit(main())
