"""What the hooks cost a step: two processes of one script, one with them and one without, take
the same few steps in turns, so that whatever else the machine does meets both."""

from __future__ import annotations

import os
import random
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from bench_table import BenchRow

from sbtrain_jobs.node_agent.trainer_command import HOOKS

PAIRS, TURNS, STEPS = 10, 80, 5
BAR = 1.005
_TURNS = f"""
import sys, time
for _ in range(2 * {STEPS}):
    step()
print("ready", flush=True)
for _ in sys.stdin:
    began, used = time.perf_counter(), time.process_time()
    for _ in range({STEPS}):
        step()
    print(time.perf_counter() - began, time.process_time() - used, flush=True)
"""
_TORCH = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(64 * 1000, 512)), batch_size=64)
batches = iter(loader)
def step():
    (x,) = next(batches)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
"""
_JAX = """
import jax, jax.numpy as jnp
@jax.jit
def update(w, x):
    return w - 0.01 * jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) @ w.T - x) ** 2))(w)
w, x = jnp.eye(512) * 0.1, jnp.ones((256, 512))
def step():
    global w
    w = update(w, x).block_until_ready()
"""
_TENSORFLOW = """
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
w, x = tf.Variable(tf.eye(512) * 0.1), tf.ones((256, 512))
@tf.function
def update():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(x @ w) @ tf.transpose(w) - x) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
    return loss
def step():
    float(update())
"""
SCRIPTS = {"torch": _TORCH, "jax": _JAX, "tensorflow": _TENSORFLOW}


def overhead_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    rows = []
    for name, script in SCRIPTS.items():
        if only not in ("", name):
            continue
        if find_spec(name) is None:
            sys.stderr.write(f"skipped: {name} is not installed\n")
            rows.append(BenchRow(what=f"{name} not installed", yardstick="", value=1, bar=0))
            continue
        file = place / f"turns_{name}.py"
        file.write_text(script + _TURNS)
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=_swallow, args=(server,), daemon=True).start()
            pairs = [_pair(file, server.getsockname()[1]) for _ in range(PAIRS)]
        for what, at, bar in (("time", 0, BAR), ("CPU time", 1, None)):
            ratios = [pair[at] for pair in pairs]
            sys.stderr.write(f"{name}, {what}: {' '.join(f'{one:.4f}' for one in ratios)}\n")
            rows.append(
                BenchRow(
                    what=f"{name}: per mille that hooks add to a step's {what}",
                    yardstick=f"median of {PAIRS} pairs, {pairs[0][2] * 1e3:.1f} ms a step",
                    value=(statistics.median(ratios) - 1) * 1e3,
                    bar=None if bar is None else (bar - 1) * 1e3,
                )
            )
    return rows


def _pair(file: Path, port: int) -> tuple[float, float, float]:
    """Ratios, with hooks to without, of the medians of all turns: time, CPU time; and the
    seconds of a step without."""
    both = {hooks: _start(file, port, hooks=hooks) for hooks in (True, False)}
    try:
        for one in both.values():
            _said(one)
        turns: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for _ in range(TURNS):
            for hooks in random.sample((True, False), 2):
                turns[hooks].append(_turn(both[hooks]))
    finally:
        for one in both.values():
            one.communicate(timeout=60)
    wall, used = (
        [statistics.median(turn[at] for turn in turns[hooks]) for hooks in (True, False)]
        for at in (0, 1)
    )
    return wall[0] / wall[1], used[0] / used[1], wall[1] / STEPS


def _start(file: Path, port: int, *, hooks: bool) -> subprocess.Popen[str]:
    of_a_rank = {
        "SBTRAIN_ROLE": "worker",
        "SBTRAIN_RANK": "0",
        "SBTRAIN_NODE": "0",
        "SBTRAIN_TOKEN": "t",
        "SBTRAIN_JOB_ID": "7",
        "SLURM_JOB_ID": "7",
        "SBTRAIN_CONTROL": f"127.0.0.1:{port}",
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    path = [HOOKS] if hooks else []
    kept = {name: value for name, value in os.environ.items() if "SBTRAIN" not in name}
    return subprocess.Popen(
        [sys.executable, str(file)],
        env={**kept, **of_a_rank, "PYTHONPATH": os.pathsep.join(path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _turn(one: subprocess.Popen[str]) -> tuple[float, float]:
    assert one.stdin is not None
    one.stdin.write("\n")
    one.stdin.flush()
    wall, used = _said(one).split()
    return float(wall), float(used)


def _said(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    return one.stdout.readline()


def _swallow(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_read_all, args=(connection,), daemon=True).start()


def _read_all(connection: socket.socket) -> None:
    with connection:
        while connection.recv(1 << 16):
            pass
