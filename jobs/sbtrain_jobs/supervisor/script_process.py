"""The user's own batch script as a process: started once, as Slurm would start it, and watched
to its end."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sbtrain_jobs.batch_step import BatchStep
from sbtrain_jobs.node_agent.trainer_command import trainer_argv
from sbtrain_jobs.process import start_in_batch_step
from sbtrain_jobs.signals import handles
from sbtrain_perf.request import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnded:
    """code: its exit status, or a signal's number as a negative one."""

    code: int


class ScriptProcess:
    """Started at once; `sink` gets ScriptEnded from a thread of its own.

    Args:
        python: sbtrain's interpreter; see trainer_argv.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        python: str,
        environ: Mapping[bytes, bytes],
        step: BatchStep,
        sink: Callable[[ScriptEnded], None],
    ) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._ended = False
        self.pid = _started(plan, python=python, environ=environ, step=step)
        threading.Thread(target=self._watch, name="script", daemon=True).start()

    def send(self, number: int, *, group: bool) -> None:
        """To the script's process alone, or to all that run in its group."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._ended:
                (os.killpg if group else os.kill)(self.pid, number)

    def handles(self, number: int) -> bool:
        """Whether the script's process has a handler of its own for a signal."""
        with self._lock:
            try:
                return not self._ended and handles(number, self.pid)
            except (OSError, ValueError):
                return False

    def _watch(self) -> None:
        # Reaped only under the lock, so that no signal meets a number given anew.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._ended = True
            _, status = os.waitpid(self.pid, 0)
        self._sink(ScriptEnded(code=os.waitstatus_to_exitcode(status)))


def _started(
    plan: Plan, *, python: str, environ: Mapping[bytes, bytes], step: BatchStep
) -> int:
    """The kernel itself honours the shebang. Where there is none, or the file may not be
    executed, as on a filesystem that is mounted so, its interpreter is started with it."""
    with Path(plan.script).open("rb") as stream:
        line = stream.readline(512).decode(errors="surrogateescape").strip()
    shebang = line if line.startswith("#!") else ""
    if shebang:
        try:
            argv = (plan.script, *plan.script_args)
            return start_in_batch_step(argv, environ=environ, step=step)
        except FileNotFoundError as error:
            named = shebang.removeprefix("#!").strip()
            raise FileNotFoundError(error.errno, f"bad interpreter {named}") from error
        except PermissionError:
            if os.access(plan.script, os.X_OK):
                raise
    argv = trainer_argv(
        plan.script,
        plan.script_args,
        shebang=shebang,
        python=python,
        environ={os.fsdecode(name): os.fsdecode(text) for name, text in environ.items()},
    )
    return start_in_batch_step(argv, environ=environ, step=step)
