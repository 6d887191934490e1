"""Two hundred launches at once on one host: does any rank get a port that another has?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench_table import BenchRow

LAUNCHES = 200
# Holds a port as an agent does, publishes it, and once all have theirs, listens on it as a
# framework does: PyTorch's store sets SO_REUSEADDR, gRPC SO_REUSEPORT.
_LAUNCH = """\
import socket, sys
from sbtrain_jobs.node_agent.held_port import HeldPort
held = HeldPort()
print(held.number, flush=True)
sys.stdin.readline()
option = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)[held.number % 2]
held.share()
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, option, 1)
server.bind(("", held.number))
server.listen()
print("listens", flush=True)
sys.stdin.readline()
"""


def port_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    launched = [
        subprocess.Popen(
            [sys.executable, "-c", _LAUNCH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(LAUNCHES)
    ]
    numbers = [_line(one) for one in launched]
    for one in launched:
        _go_on(one)
    listening = [_line(one) == "listens" for one in launched]
    for one in launched:
        one.communicate("\n", timeout=60)
    clashes = LAUNCHES - len(set(numbers)) + listening.count(False)
    yard = f"{LAUNCHES} launches at once"
    return [BenchRow(what="ports that clash", yardstick=yard, value=clashes, bar=0)]


def _line(launched: subprocess.Popen[str]) -> str:
    assert launched.stdout is not None
    return launched.stdout.readline().strip()


def _go_on(launched: subprocess.Popen[str]) -> None:
    assert launched.stdin is not None
    launched.stdin.write("\n")
    launched.stdin.flush()
