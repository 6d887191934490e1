"""One srun that the supervisor started: it tells when it has ended, and can be ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sbtrain_jobs.process import start_process


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """returncode is srun's: the highest exit status of its tasks, or 128 + a signal."""

    name: str
    returncode: int


class SlurmStep:
    """Started at once; `sink` gets StepEnded from a thread of its own.

    Raises:
        CommandMissingError: there is no srun.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        sink: Callable[[StepEnded], None],
        quiet: bool = False,
    ) -> None:
        self.name = name
        self._sink = sink
        self._lock = threading.Lock()
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            output = nowhere if quiet else None
            self._process = start_process(argv, env=environment, stdout=output, stderr=output)
        self._watcher = threading.Thread(target=self._watch, name=name, daemon=True)
        self._watcher.start()

    def end(self) -> None:
        """Ask srun to end the step: it sends TERM, then KILL, to the tasks."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End srun itself; slurmd then ends the tasks."""
        self._signal(signal.SIGKILL)

    def join(self, within_s: float) -> bool:
        self._watcher.join(within_s)
        return not self._watcher.is_alive()

    def _watch(self) -> None:
        # Reaped only under the lock, so that `_signal` never meets a number given anew.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            returncode = self._process.wait()
        code = 128 - returncode if returncode < 0 else returncode
        self._sink(StepEnded(name=self.name, returncode=code))

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, number)
