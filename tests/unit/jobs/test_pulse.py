"""What a node tells of its trainers from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sbtrain_jobs.ending.pulses import Pulses
from sbtrain_jobs.node_agent.pulse import has_accelerators, pulse


def _signs(program: list[str], *, begun_s: float) -> bool:
    """Whether a program that has computed so much is seen to be at work."""
    pulses = Pulses()
    with subprocess.Popen(program, start_new_session=True) as running:
        by_s = time.monotonic() + 30.0
        while pulse(0, running.pid).cpu_s < begun_s and time.monotonic() < by_s:
            time.sleep(0.1)
        time.sleep(0.5)
        pulses.heard(pulse(0, running.pid), 0.0)
        time.sleep(2.0)
        pulses.heard(pulse(0, running.pid), 2.0)
        os.killpg(running.pid, signal.SIGKILL)
    return pulses.at_work(0, 2.0)


@pytest.mark.parametrize(
    ("text", "at_work"),
    [
        ("while True: pass", True),
        ("import time\nwhile True: time.sleep(1)", False),
    ],
)
def test_what_computes_and_what_sleeps_are_told_apart(text: str, at_work: bool) -> None:
    assert _signs([sys.executable, "-c", text], begun_s=0.01) is at_work


def test_what_a_wrapper_has_started_counts() -> None:
    inner = f"{sys.executable} -c 'while True: pass'"
    assert _signs(["bash", "-c", f"{inner} & wait"], begun_s=0.1)


def test_a_process_that_is_gone_has_no_pulse() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    said = pulse(3, gone.pid)
    assert (said.rank, said.cpu_s, said.io_bytes) == (3, 0.0, 0)


@pytest.mark.parametrize(
    "device", ["nvidiactl", "nvidia0", "dri/renderD128", "accel0", "dxg", "kfd"]
)
def test_a_node_with_a_device_to_compute_on(tmp_path: Path, device: str) -> None:
    (tmp_path / "dri").mkdir()
    for other in ("null", "nvme0", "vfio", "dri/card0"):
        (tmp_path / other).touch()
    assert not has_accelerators(tmp_path)
    (tmp_path / device).touch()
    assert has_accelerators(tmp_path)
