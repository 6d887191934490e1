"""Starting other programs: the only file of sbtrain that does.

Never through a shell; always in a session of its own, so that a signal to sbtrain does not
reach the program by accident; always with an end in time; and Slurm's commands never so that
they lead back to sbtrain. A user's batch script alone is started as Slurm would start it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sbtrain_jobs.batch_step import BatchStep, open_descriptors
from sbtrain_jobs.errors import CommandFailedError, CommandMissingError, CommandTimeoutError
from sbtrain_jobs.slurm_calls import program_for

Child = subprocess.Popen[bytes]
_PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a finished command printed, and its exit status."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    check: str = "raise",
) -> CommandResult:
    """Run a program to its end.

    Args:
        argv: program and arguments, passed as they are.
        timeout_s: seconds after which its whole session is killed.
        check: "raise" turns an exit status other than 0 into an error; "keep" returns it.

    Raises:
        CommandMissingError: the program is not there.
        CommandTimeoutError: it did not end in time.
        CommandFailedError: it exited with another status than 0.
    """
    process = start_process(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(
            None if stdin is None else stdin.encode(errors="surrogateescape"),
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        end_session(process)
        out, err = process.communicate()
        raise CommandTimeoutError(
            f"{argv[0]} did not answer within {timeout_s:g} s",
            argv=argv,
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
        ) from None
    except BaseException:
        end_session(process)
        process.wait()
        raise
    result = CommandResult(
        argv=tuple(argv),
        returncode=process.returncode,
        stdout=out.decode(errors="replace"),
        stderr=err.decode(errors="replace"),
    )
    if check == "raise" and result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise CommandFailedError(
            f"{argv[0]} exited with {result.returncode}" + (f": {said[-1]}" if said else ""),
            argv=argv,
            returncode=result.returncode,
            stdout=result.stdout,
            stderr=result.stderr,
        )
    return result


def start_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    outlives_us: bool = True,
) -> Child:
    """Start a program and return at once; the caller ends and reaps it.

    Args:
        outlives_us: False has the kernel kill it when the thread that starts it ends,
            however that ends; start it from the main thread then.

    Raises:
        CommandMissingError: the program is not there or may not be run.
    """
    program = program_for(argv, env)
    try:
        return subprocess.Popen(
            list(program.argv),
            executable=program.file,
            env=None if program.environ is None else dict(program.environ),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(*pass_fds, *program.notes),
            # What it calls is loaded before the fork.
            preexec_fn=None if outlives_us else dying_with(os.getpid()),  # noqa: PLW1509
        )
    except (FileNotFoundError, PermissionError) as error:
        raise CommandMissingError(
            f"cannot run {program.file or argv[0]}: {error.strerror}", argv=argv
        ) from None
    finally:
        for note in program.notes:
            os.close(note)


def dying_with(parent: int) -> Callable[[], None]:
    """What a child calls to be killed when the thread that started it ends."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def in_child() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(128 + signal.SIGKILL)

    return in_child


def start_in_batch_step(
    argv: Sequence[str], *, environ: Mapping[bytes, bytes], step: BatchStep
) -> int:
    """Start a program as Slurm starts a batch script: leader of a process group, all signals as
    they are by default, with the step's own open files and limits and no others.

    Returns:
        Its process id; the caller reaps it.

    Raises:
        OSError: it is not there or may not be run.
    """
    ours = [fd for fd in open_descriptors() - step.descriptors if _is_handed_on(fd)]
    with _open_files(step.open_files):
        return os.posix_spawn(
            argv[0],
            list(argv),
            environ,
            file_actions=[(os.POSIX_SPAWN_CLOSE, fd) for fd in ours],
            setpgroup=0,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )


def _is_handed_on(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False  # closed meanwhile


@contextlib.contextmanager
def _open_files(limits: tuple[int, int]) -> Iterator[None]:
    """What is started here gets these limits."""
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, ours)


def end_session(process: Child) -> None:
    """Kill a process that start_process started, with all that it started in its session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
