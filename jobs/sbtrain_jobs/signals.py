"""Which signals are a notice to stop, and how they are caught without losing one; what else
is to be known of a process's signals."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from sbtrain_jobs.errors import LaunchError

# What Slurm sends depends on its version, the partition and sbatch's --signal; never CONT,
# which it sends along with the others and which says nothing.
ALWAYS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

# Signals that are not passed on: no process can catch them, or they tell of its own doings.
_OWN = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),
    *(signal.SIGTRAP, signal.SIGSYS),
}
_PR_SET_DUMPABLE = 4  # prctl(2)


def passed_on() -> tuple[int, ...]:
    """All that somebody may send, real-time signals included. XCPU tells of our own doings
    where the time of a process is limited."""
    own: set[int] = {*_OWN}
    if resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY:
        own.add(signal.SIGXCPU)
    return tuple(sorted({*signal.valid_signals()} - own))


def notice_signals(preemption_signal: str) -> tuple[signal.Signals, ...]:
    """TERM, USR1, USR2 and the site's own.

    Raises:
        LaunchError: the plan names a signal that does not exist or cannot be caught.
    """
    own = signal_named(preemption_signal)
    if own in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT):
        raise LaunchError(
            f"the preemption signal {preemption_signal} cannot serve as a notice",
            hint="set preemption_signal in the site file to USR1, USR2 or TERM",
        )
    return tuple(dict.fromkeys((*ALWAYS, own)))


def notice_or_default(name: str) -> str:
    """A signal that can serve as a notice: USR1 for one that cannot, as sbatch takes any in
    --signal."""
    try:
        notice_signals(name)
    except LaunchError:
        return "USR1"
    return name


def signal_named(name: str) -> signal.Signals:
    """USR1, SIGUSR1 or a number. Raises LaunchError when there is no such signal."""
    text = name.strip().upper()
    try:
        if text.isdecimal():
            return signal.Signals(int(text))
        return signal.Signals[text if text.startswith("SIG") else f"SIG{text}"]
    except (KeyError, ValueError):
        raise LaunchError(
            f"there is no signal {name!r}",
            hint="set preemption_signal in the site file to USR1, USR2 or TERM",
        ) from None


def catch(numbers: Sequence[int], told: Callable[[int], None]) -> None:
    """Call `told` for each of these signals, in the main thread, between two bytecodes. Most
    real-time signals have no name in `signal.Signals`, so it is told their numbers.

    told must be safe to interrupt anything: SimpleQueue.put is.
    """
    for number in numbers:
        signal.signal(number, lambda received, _frame: told(received))


def handles(number: int, pid: int) -> bool:
    """Whether a process has a handler of its own for a signal; proc(5), SigCgt.

    Raises:
        OSError, ValueError: it is gone.
    """
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    return bool(_mask(status, "SigCgt") >> (number - 1) & 1)


def is_pending(number: int, pid: int) -> bool:
    """Whether a signal waits for a process that blocks it; proc(5), ShdPnd."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        return bool(_mask(status, "ShdPnd") >> (number - 1) & 1)
    except (OSError, ValueError):
        return False


def end_by(number: int) -> NoReturn:
    """End this process as a signal ends one that does not handle it, without a core file."""
    import ctypes

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the limit does not bind a kernel that pipes cores
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # what the signal left undone


def _mask(status: str, name: str) -> int:
    return int(status.partition(f"\n{name}:")[2].split(maxsplit=1)[0], 16)
