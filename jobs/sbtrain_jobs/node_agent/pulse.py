"""What a node shows of its trainers from outside: which devices there are to compute on, and
how much a process and its children have computed and read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sbtrain_jobs.wire.messages import Pulse

# Of NVIDIA (WSL's too), AMD and Intel, TPUs and Gaudi, Ascend, Cambricon.
_DEVICES = (
    *("nvidiactl", "nvidia[0-9]*", "dxg", "kfd", "dri/render*"),
    *("accel*", "vfio/[0-9]*", "hl[0-9]*", "davinci[0-9]*", "cambricon*"),
)
_MOST_PROCESSES = 200


def has_accelerators(devices: Path = Path("/dev")) -> bool:
    """Whether a framework might find anything but CPUs on this node."""
    return any(next(devices.glob(name), None) is not None for name in _DEVICES)


def pulse(rank: int, pid: int) -> Pulse:
    """Of a trainer, and all that its main threads started."""
    cpu_s, read_bytes, faults, on_disk = 0.0, 0, 0, False
    for one in _family(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            on_disk = on_disk or fields[0] == "D"
            faults += int(fields[9])
            ticks = sum(int(number) for number in fields[11:15])
            cpu_s += ticks / os.sysconf("SC_CLK_TCK")
            counts = Path(f"/proc/{one}/io").read_text().splitlines()
            read_bytes += sum(int(line.split()[1]) for line in counts[:2])
    return Pulse(rank=rank, cpu_s=cpu_s, io_bytes=read_bytes, faults=faults, on_disk=on_disk)


def _family(pid: int) -> Iterator[int]:
    known = [pid]
    for one in known:
        yield one
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            known.extend(int(child) for child in children[: _MOST_PROCESSES - len(known)])
