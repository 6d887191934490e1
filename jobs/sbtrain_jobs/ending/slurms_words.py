"""What Slurm itself writes of the job's end into the job's own output."""

from __future__ import annotations

import re
from pathlib import Path

from sbtrain_jobs.batch_step import file_behind

_MOST_BYTES = 1 << 20  # of what was written since


class SlurmsWords:
    """Reads from where the output is now. Where it is no file, nothing is found there."""

    def __init__(self, job_id: str, *, descriptor: int = 2) -> None:
        self._path = Path(file_behind(descriptor) or "/dev/null")
        self._line = re.compile(
            rb"\*\*\* (?:JOB|STEP) %s(?:\.\S+)? ON .* DUE TO PREEMPTION \*\*\*"
            % re.escape(job_id).encode()
        )
        self._begin = self._size()

    def tell_of_preemption(self) -> bool:
        """A job without a grace time is requeued in the moment of its preemption, and whoever
        asks then is told no more than that. What Slurm writes before its signal says why."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(max(self._begin, self._size() - _MOST_BYTES))
                return self._line.search(stream.read(_MOST_BYTES)) is not None
        except OSError:
            return False

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0
