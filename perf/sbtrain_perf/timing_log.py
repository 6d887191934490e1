"""The timing log: one HDF5 file an attempt, written by the supervisor alone.

    /plan    the text of plan.json, bytes
    /phases  name, seconds, at_s (its start, in seconds of the attempt), numbers (JSON: what
             else was measured of the phase, such as size_bytes, step, parameters, tensors)
    /steps   rank, step, seconds, samples_per_step: one row a finished step
    attributes of the root: schema, attempt

The last column of both tables, whole, is 1: a row whose end never reached the disk reads as
zeros there, and is left out.

The file appears under its name complete and in HDF5's single-writer mode (SWMR): from then
on it can be read at any moment, also when the writer was killed. What was flushed is there.
Its format is that of HDF5 1.10, the oldest that knows SWMR, so that the h5py of another
environment reads it, whichever is the older.

It is not read in that mode: HDF5 would wait for ever for a damaged block to become whole. A
file whose writer has not closed it is read as a copy that is marked closed.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbtrain_perf.codec import plan_from_json, plan_to_json
from sbtrain_perf.errors import PlanError, TimingLogError, needs_extra
from sbtrain_perf.extras import newer_h5py
from sbtrain_perf.request import Layout, Plan, Prediction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = 1
PHASES = ("queue", "stage", "start", "steps", "restore", "checkpoint", "evaluate", "lost")

_NUMBERS_BYTES = 1024  # SWMR knows no text of varying length
_HELD_ROWS = 4096  # kept back at most until a flush
_CHUNK_ROWS = 1024
_WHOLE = 1

_FORMAT = ("v110", "v110")
# The superblock of that format, of version 3
_SUPERBLOCK = struct.Struct("<8sBBBB4QI")
_SIGNATURE = (b"\x89HDF\r\n\x1a\n", 3, 8, 8)
_SAID_OF_DAMAGE = (
    *(OSError, RuntimeError, LookupError, ValueError, TypeError),
    *(AttributeError, ArithmeticError, MemoryError, struct.error),
)
_TRIES_S = (0.05, 0.1, 0.2)  # between copies: a writer may be at it


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of an attempt. numbers holds what else was measured of it, by name."""

    name: str
    seconds: float
    at_s: float
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankSteps:
    """The steps that one rank timed: arrays of one length, in the order of arrival."""

    rank: int
    step: NDArray[np.int64]
    seconds: NDArray[np.float64]
    samples_per_step: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttemptTimings:
    """All that one attempt measured, with the plan that it followed."""

    plan: Plan
    attempt: int
    phases: tuple[Phase, ...]
    ranks: tuple[RankSteps, ...]

    @property
    def run_id(self) -> str:
        return self.plan.run_id

    @property
    def workload(self) -> str:
        return self.plan.workload

    @property
    def cluster(self) -> str:
        return self.plan.cluster

    @property
    def partition(self) -> str:
        return self.plan.partition

    @property
    def layout(self) -> Layout:
        return self.plan.layout

    @property
    def nodes(self) -> int:
        return self.plan.nodes

    @property
    def prediction(self) -> Prediction:
        return self.plan.prediction

    def named(self, name: str) -> tuple[Phase, ...]:
        return tuple(phase for phase in self.phases if phase.name == name)

    def described(self, name: str) -> float | None:
        """The last number of this name that any phase carried, such as `parameters`."""
        found = [p.numbers[name] for p in self.phases if name in p.numbers]
        return found[-1] if found else None


class TimingLog:
    """Writes one attempt's timing log. Rows wait in memory until a flush.

    Errors of all methods: TimingLogError when the file cannot be written; the run itself
    need not end with it.
    """

    def __init__(self, file: Any, path: Path) -> None:
        self._file = file
        self._path = path
        self._phases: list[tuple[bytes, float, float, bytes, int]] = []
        self._steps: list[tuple[int, int, float, int, int]] = []

    @classmethod
    def create(cls, path: str | Path, *, plan: Plan, attempt: int) -> TimingLog:
        """Make the file, private to its owner.

        Raises:
            TimingLogError: it is there already, or cannot be made.
            MissingExtraError: h5py is not installed.
        """
        h5py = _h5py()
        path = Path(path)
        if path.exists():
            raise TimingLogError(
                f"the timing log {path} is there already",
                hint="each attempt writes its own; none is written over",
            )
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with _wrapped(f"cannot make the timing log {path}"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                file = h5py.File(temporary, "w", libver=_FORMAT, locking="best-effort")
                _lay_out(file, plan, attempt)
                file.swmr_mode = True
                file.flush()
                temporary.rename(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        return cls(file, path)

    def phase(self, name: str, seconds: float, *, at_s: float, **numbers: float | None) -> None:
        """Add a phase that ended.

        Args:
            name: one of PHASES.
            at_s: when it began, in seconds since the attempt did (negative: before).
            numbers: what else was measured: size_bytes, step, parameters, tensors and
                whatever metrics there are. None, and what is not finite, is left out.
        """
        if name not in PHASES:
            raise TimingLogError(f"{name!r} is no phase", hint=f"one of {', '.join(PHASES)}")
        if not (math.isfinite(seconds) and math.isfinite(at_s)):
            raise TimingLogError(f"the phase {name!r} took {seconds} s, at {at_s}")
        known = {
            key: float(value)
            for key, value in numbers.items()
            if value is not None and math.isfinite(value)
        }
        text = json.dumps(known).encode()
        if len(text) > _NUMBERS_BYTES:
            raise TimingLogError(
                f"the numbers of the phase {name!r} take {len(text)} bytes",
                hint=f"{_NUMBERS_BYTES} are the most: fewer metrics, or shorter names",
            )
        self._phases.append((name.encode(), seconds, at_s, text, _WHOLE))

    def steps(
        self, rank: int, first: int, seconds: Sequence[float], samples_per_step: int
    ) -> None:
        """Add steps first, first+1, ... (counted from 1) of a rank, with each one's time."""
        if first < 1:
            raise TimingLogError(f"steps count from 1, not from {first}")
        self._steps += [
            (rank, first + i, one, samples_per_step, _WHOLE) for i, one in enumerate(seconds)
        ]
        if len(self._steps) >= _HELD_ROWS:
            self.flush()

    def flush(self) -> None:
        """Give everything so far to the operating system: it survives a kill -9."""
        with _wrapped(f"cannot write the timing log {self._path}"):
            for name, rows in (("phases", self._phases), ("steps", self._steps)):
                if rows:
                    dataset = self._file[name]
                    end = len(dataset)
                    dataset.resize((end + len(rows),))
                    dataset[end:] = _array(rows, dataset.dtype)
                    dataset.flush()
                    rows.clear()

    def close(self) -> None:
        """Flush and close. The log cannot be used after."""
        try:
            self.flush()
        finally:
            with _wrapped(f"cannot close the timing log {self._path}"):
                self._file.close()

    def __enter__(self) -> TimingLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_timing_log(path: str | Path) -> AttemptTimings:
    """Read a log, also while it is written or after its writer was killed.

    Raises:
        TimingLogError: it is missing, is no timing log, or is of another version, sbtrain's
            or HDF5's.
        MissingExtraError: h5py is not installed.
    """
    h5py = _h5py()
    path = Path(path)
    if not path.is_file():
        raise TimingLogError(f"there is no timing log {path}")
    pauses_s = iter(_TRIES_S)
    while True:
        is_open = False
        try:
            with _wrapped(f"{path} is not a timing log, or is damaged"):
                is_open = _is_open(path)
                with _opened(h5py, path, copied=is_open) as file, _format_known(h5py, path):
                    return _timings(file, path)
        except TimingLogError:
            pause_s = next(pauses_s, None) if is_open else None
            if pause_s is None:
                raise
            time.sleep(pause_s)


def _is_open(path: Path) -> bool:
    """Whether a writer has the file open, or was killed with it open."""
    with path.open("rb") as file:
        head = file.read(_SUPERBLOCK.size)
    if len(head) < _SUPERBLOCK.size:
        raise ValueError("it is too short")
    *signature, flags = _SUPERBLOCK.unpack(head)[:5]
    return tuple(signature) == _SIGNATURE and flags != 0


def _opened(h5py: Any, path: Path, *, copied: bool) -> Any:
    """The file itself; or as it is now, in memory, marked closed and as long as it is."""
    if not copied:
        return h5py.File(path, "r", locking="best-effort")
    image = bytearray(path.read_bytes())
    head = _SUPERBLOCK.unpack_from(image)
    if head[-1] != _checksum(image[: _SUPERBLOCK.size - 4]):
        raise ValueError("its first block does not have its own checksum")
    signature, version, offsets, lengths, _, base, extension, _, root, _ = head
    closed = (signature, version, offsets, lengths, 0, base, extension, len(image), root)
    _SUPERBLOCK.pack_into(image, 0, *closed, 0)
    _SUPERBLOCK.pack_into(image, 0, *closed, _checksum(image[: _SUPERBLOCK.size - 4]))
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_core(backing_store=False)
    access.set_file_image(bytes(image))
    name = secrets.token_hex(8).encode()  # HDF5 takes two open files of a name for one
    return h5py.File(h5py.h5f.open(name, h5py.h5f.ACC_RDONLY, fapl=access))


def _checksum(data: bytes | bytearray) -> int:
    """HDF5's of metadata: Jenkins' lookup3. data: a multiple of 4 bytes, not of 12."""
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        return (value << by | value >> 32 - by) & mask

    words = [*struct.unpack(f"<{len(data) // 4}I", data), 0, 0]
    a = b = c = 0xDEADBEEF + len(data)
    for at in range(0, len(words) - 2, 3):
        a, b, c = (a + words[at]) & mask, (b + words[at + 1]) & mask, (c + words[at + 2]) & mask
        if at + 3 >= len(words) - 2:
            break
        for by in (4, 6, 8, 16, 19, 4):
            a = (a - c & mask) ^ rotated(c, by)
            c = c + b & mask
            a, b, c = b, c, a
    for by in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - rotated(b, by)) & mask
        a, b, c = b, c, a
    return b


@contextmanager
def _format_known(h5py: Any, path: Path) -> Iterator[None]:
    """Name the HDF5 that wrote what this one does not know, as sbtrain had it do while h5py
    chose the format."""
    try:
        yield
    except _SAID_OF_DAMAGE as error:
        install = newer_h5py(str(error))
        if not install:
            raise
        raise TimingLogError(
            f"{path} was written by HDF5 2.0 or newer; this HDF5, "
            f"{h5py.version.hdf5_version} of h5py {h5py.version.version}, does not read it, "
            "h5py 3.16 does",
            hint=f"{install}, or refit in the environment of that job",
        ) from error


def _timings(file: Any, path: Path) -> AttemptTimings:
    schema = int(file.attrs.get("schema", 0))
    if schema != SCHEMA:
        raise TimingLogError(
            f"{path} is a timing log of version {schema}, this sbtrain reads {SCHEMA}",
            hint="refit skips it",
        )
    try:
        plan = plan_from_json(bytes(file["plan"][:]).decode(), source=f"the plan in {path}")
    except PlanError as error:
        hint = "another sbtrain wrote it, or it is damaged; refit skips it"
        raise TimingLogError(error.message, hint=hint) from error
    phases = file["phases"][:]
    steps = file["steps"][:]
    return AttemptTimings(
        plan=plan,
        attempt=int(file.attrs["attempt"]),
        phases=tuple(_phase(row) for row in phases[phases["whole"] == _WHOLE]),
        ranks=_ranks(steps[steps["whole"] == _WHOLE]),
    )


def _phase(row: Any) -> Phase:
    numbers = json.loads(bytes(row["numbers"]).decode() or "{}")
    return Phase(
        name=bytes(row["name"]).decode(),
        seconds=float(row["seconds"]),
        at_s=float(row["at_s"]),
        numbers={str(key): float(value) for key, value in numbers.items()},
    )


def _ranks(steps: Any) -> tuple[RankSteps, ...]:
    import numpy as np

    ranks = []
    for rank in np.unique(steps["rank"]).tolist():
        rows = steps[steps["rank"] == rank]
        ranks.append(
            RankSteps(
                rank=rank,
                step=rows["step"].astype(np.int64),
                seconds=rows["seconds"].astype(np.float64),
                samples_per_step=int(rows["samples_per_step"][-1]),
            )
        )
    return tuple(ranks)


def _lay_out(file: Any, plan: Plan, attempt: int) -> None:
    import numpy as np

    file.attrs["schema"] = SCHEMA
    file.attrs["attempt"] = attempt
    file["plan"] = np.frombuffer(plan_to_json(plan).encode(), dtype=np.uint8)
    numbers, whole = f"S{_NUMBERS_BYTES}", ("whole", "u1")
    phase = [("name", "S16"), ("seconds", "f8"), ("at_s", "f8"), ("numbers", numbers), whole]
    step = [
        ("rank", "i4"),
        ("step", "i8"),
        ("seconds", "f8"),
        ("samples_per_step", "i4"),
        whole,
    ]
    for name, columns, rows in (("phases", phase, 32), ("steps", step, _CHUNK_ROWS)):
        file.create_dataset(
            name, shape=(0,), maxshape=(None,), chunks=(rows,), dtype=np.dtype(columns)
        )


def _array(rows: Sequence[tuple[object, ...]], dtype: Any) -> Any:
    import numpy as np

    return np.array(rows, dtype=dtype)


def _h5py() -> Any:
    with needs_extra("perf", purpose="the timing log"):
        import h5py
    return h5py


@contextmanager
def _wrapped(what: str) -> Iterator[None]:
    """What h5py and the system say, as one typed error."""
    try:
        yield
    except _SAID_OF_DAMAGE as error:
        said = " ".join(str(error).split())
        raise TimingLogError(f"{what}: {said}") from error
