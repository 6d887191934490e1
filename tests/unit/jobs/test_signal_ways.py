"""By which way a signal came, told by processes that have had it too."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from played_supervisor import eventually
from sbtrain_jobs.process import Child, end_session, start_process

# It forks, and must do so before there is another thread: so in a process of its own.
TELLS = """
import queue, signal, sys
from sbtrain_jobs.signals import catch, passed_on
from sbtrain_jobs.supervisor.signal_ways import SignalWays
ways, events = SignalWays(), queue.SimpleQueue()
catch(passed_on(), events.put)
pids = ways._in_group.pid, ways._elsewhere.pid
sys.stdout.write(f"{pids[0]} {pids[1]}\\n")
while True:
    sys.stdout.flush()
    try:
        ways.arrived(events.get(timeout=ways.next_s or 0.05))
    except queue.Empty:
        pass
    for number, way in ways.known():
        name = signal.Signals(number).name if number in set(signal.Signals) else number
        sys.stdout.write(f"{name} {way}\\n")
"""


@pytest.fixture
def teller() -> Iterator[tuple[Child, list[int], Iterator[str]]]:
    reader, writer = os.pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = start_process([sys.executable, "-c", TELLS], env=environment, stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as stream:
        lines = (line.strip() for line in stream)
        yield process, [int(word) for word in next(lines).split()], lines
        end_session(process)
        process.wait()


def test_the_way_of_a_signal(teller: tuple[Child, list[int], Iterator[str]]) -> None:
    process, witnesses, lines = teller
    process.send_signal(signal.SIGUSR1)
    assert next(lines) == "SIGUSR1 process"
    os.killpg(process.pid, signal.SIGUSR1)
    assert next(lines) == "SIGUSR1 group"
    for pid in (witnesses[1], process.pid, witnesses[0]):
        os.kill(pid, signal.SIGTERM)
    assert next(lines) == "SIGTERM step"
    process.send_signal(signal.SIGTERM)
    assert next(lines) == "SIGTERM process"
    os.kill(process.pid, signal.SIGRTMIN + 3)
    assert next(lines) == f"{signal.SIGRTMIN + 3} process"


def test_witnesses_hold_no_file_and_die_with_us(
    teller: tuple[Child, list[int], Iterator[str]],
) -> None:
    process, witnesses, lines = teller
    for pid in witnesses:
        files = Path(f"/proc/{pid}/fd")
        eventually(lambda files=files: len(list(files.iterdir())) == 2)  # the pipes to us
    process.kill()
    process.wait()
    assert next(lines, None) is None
    for pid in witnesses:
        path = Path(f"/proc/{pid}/stat")
        eventually(lambda path=path: not path.exists() or ") Z " in path.read_text())
