"""Which signals are a notice to stop, and how they are caught without losing one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from sbtrain_jobs.errors import LaunchError

# What Slurm sends depends on its version, the partition and sbatch's --signal; never CONT,
# which it sends along with the others and which says nothing.
ALWAYS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


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


def catch(numbers: Sequence[signal.Signals], told: Callable[[signal.Signals], None]) -> None:
    """Call `told` for each of these signals, in the main thread, between two bytecodes.

    told must be safe to interrupt anything: SimpleQueue.put is.
    """
    for number in numbers:
        signal.signal(number, lambda received, _frame: told(signal.Signals(received)))
