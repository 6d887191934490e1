"""The world over MPI. Imported only where a launcher started more than one rank.

Nothing here blocks inside MPI: every wait tests, naps, and looks whether another rank
failed, so that an error ends all ranks and a waiting rank leaves its core to others.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import mpi4py

from sbtrain_staging.ranks.meeting import end_if_alone

mpi4py.rc.thread_level = "serialized"
mpi4py.rc.finalize = False

_PR_SET_PDEATHSIG = 1


def _die_with_launcher() -> None:
    """Have the kernel end this rank with its launcher: MPI itself waits for ever for a
    world that is gone, also in the midst of its start."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _address_within_pmi_line() -> None:
    """Choose the wheel's OFI device under Slurm's pmi2, whose lines end at 1,024 bytes: the
    addresses of its UCX device are longer, arrive cut, and the start aborts or hangs."""
    under_slurm_pmi = {"PMI_FD", "SLURM_JOB_ID"} <= os.environ.keys()
    if under_slurm_pmi and any((Path(sys.prefix) / "lib").glob("libmpi.so*")):
        os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")


_die_with_launcher()
_address_within_pmi_line()
end_if_alone()

from mpi4py import MPI  # noqa: E402

signal.alarm(0)

from sbtrain_staging.errors import StagingError, WorldError  # noqa: E402
from sbtrain_staging.ranks.world import Nap, Transfer, from_line, to_line  # noqa: E402

_TAG_ERROR = 1
_TAG_PROGRESS = 2
_ERROR_BYTES_MOST = 16 << 10
_LEAVE_WAIT_S = 10.0


class MpiTransfer:
    """One MPI request."""

    __slots__ = ("_request", "_status")

    def __init__(self, request: MPI.Request) -> None:
        self._request = request
        self._status = MPI.Status()

    def finished(self) -> int | None:
        if not self._request.Test(self._status):
            return None
        return self._status.Get_count(MPI.BYTE)


class MpiWorld:
    """All ranks of MPI_COMM_WORLD."""

    def __init__(self) -> None:
        self._data = MPI.COMM_WORLD.Dup()
        self._control = MPI.COMM_WORLD.Dup()
        self.rank = self._data.Get_rank()
        self.size = self._data.Get_size()
        self._done_bytes = array("q", [0] * self.size)
        self._failure: StagingError | None = None
        self._outgoing: list[tuple[MPI.Request, object]] = []
        self._error_buffer = bytearray(_ERROR_BYTES_MOST)
        self._error_request = self._listen_for_errors()

    def _listen_for_errors(self) -> MPI.Request:
        return self._control.Irecv(
            [self._error_buffer, MPI.BYTE], source=MPI.ANY_SOURCE, tag=_TAG_ERROR
        )

    def _wait(self, request: MPI.Request) -> None:
        nap = Nap()
        while not request.Test():
            self.poll()
            nap.take()

    def exchange(self, payload: bytes) -> list[bytes]:
        if self.size == 1:
            return [payload]
        lengths = array("q", [0] * self.size)
        mine = array("q", [len(payload)])
        self._wait(self._data.Iallgather([mine, MPI.INT64_T], [lengths, MPI.INT64_T]))
        starts = [sum(lengths[:rank]) for rank in range(self.size)]
        every = bytearray(sum(lengths))
        self._wait(
            self._data.Iallgatherv(
                [payload, MPI.BYTE], [every, (list(lengths), starts), MPI.BYTE]
            )
        )
        return [
            bytes(every[start : start + length])
            for start, length in zip(starts, lengths, strict=True)
        ]

    def send(self, data: memoryview, *, to: int, tag: int) -> Transfer:
        return MpiTransfer(self._data.Isend([data, MPI.BYTE], dest=to, tag=tag))

    def receive(self, into: memoryview, *, source: int, tag: int) -> Transfer:
        return MpiTransfer(self._data.Irecv([into, MPI.BYTE], source=source, tag=tag))

    def tell(self, done_bytes: int) -> None:
        self._done_bytes[self.rank] = done_bytes
        self._outgoing = [pair for pair in self._outgoing if not pair[0].Test()]
        if self.rank != 0 and len(self._outgoing) < self.size:
            said = array("q", [done_bytes])
            request = self._control.Isend([said, MPI.INT64_T], dest=0, tag=_TAG_PROGRESS)
            self._outgoing.append((request, said))

    def told(self) -> Sequence[int]:
        status = MPI.Status()
        said = array("q", [0])
        while self._control.Iprobe(source=MPI.ANY_SOURCE, tag=_TAG_PROGRESS, status=status):
            self._control.Recv(
                [said, MPI.INT64_T], source=status.Get_source(), tag=_TAG_PROGRESS
            )
            self._done_bytes[status.Get_source()] = said[0]
        return self._done_bytes

    def poll(self) -> None:
        if self._failure is not None:
            raise self._failure
        status = MPI.Status()
        if self._error_request.Test(status):
            length = status.Get_count(MPI.BYTE)
            self._failure = from_line(bytes(self._error_buffer[:length]))
            raise self._failure

    def fail(self, error: StagingError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        line = to_line(error)
        if len(line) > _ERROR_BYTES_MOST:
            line = to_line(WorldError(error.message[:1000]))
        for rank in range(self.size):
            if rank != self.rank:
                request = self._control.Isend([line, MPI.BYTE], dest=rank, tag=_TAG_ERROR)
                self._outgoing.append((request, line))

    def leave(self, exit_code: int) -> None:
        """End MPI: orderly where all ranks came here together, else with MPI_Abort.

        After a failure in the middle, messages may be under way that nobody will take, so
        an orderly end could wait for ever. Rank 0 ends all, having said why; the others
        give it time.
        """
        if self._failure is None:
            self._end_orderly()
            return
        deadline = time.monotonic() + (0.2 if self.rank == 0 else _LEAVE_WAIT_S)
        while time.monotonic() < deadline:
            self._outgoing = [pair for pair in self._outgoing if not pair[0].Test()]
            time.sleep(0.01)
        self._abort(exit_code)

    def _end_orderly(self) -> None:
        self._wait(self._data.Ibarrier())
        if self.rank == 0:
            self.told()
        self._error_request.Cancel()
        self._error_request.Wait()
        MPI.Finalize()

    def _abort(self, exit_code: int) -> NoReturn:
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(exit_code)
        os._exit(exit_code)
