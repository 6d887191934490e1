"""What the supervisor needs of the batch system: a Protocol, so that this wing knows no
Slurm command. The plugin wing hands in a body made of its Slurm client."""

from __future__ import annotations

from typing import Literal, Protocol

EndCause = Literal[
    "preempted",  # a job of higher priority takes the nodes
    "time-limit",  # the job's time is nearly over
    "cancelled",  # its user or an operator ended it: final
    "requeued",  # Slurm has already put it back into the queue
    "node-fail",  # a node of the allocation was lost
    "none",  # Slurm sees no reason to end it
    "unknown",  # Slurm did not answer, or not in words we know
]

WayBack = Literal[
    "requeue",  # ask for the requeue: an exit would end the job for good
    "exit",  # exit: Slurm requeues, and asked besides, it would do so once more at the end
    "wait",  # neither is known to be safe: stay until the grace time ends
]


class JobControl(Protocol):
    """All calls may take as long as Slurm takes to answer; the supervisor bounds them."""

    def end_cause(self, job_id: str) -> EndCause:
        """Why the job is being ended. Raises SbtrainError when Slurm does not answer."""
        ...

    def requeue(self, job_id: str) -> None:
        """Put the job back into the queue; `job_id` is N, or Array_Task for an array task.

        Raises:
            SbtrainError: Slurm refused or did not answer.
        """
        ...

    def way_back(self) -> WayBack:
        """How a job that is being preempted comes back into the queue before its grace time
        ends. Raises SbtrainError when Slurm does not answer."""
        ...

    def forbid_requeue(self, job_id: str) -> None:
        """Have Slurm leave the job alone once it ends: it requeues jobs that end while they
        are being preempted. Raises SbtrainError: Slurm refused or did not answer."""
        ...

    def binds_cpus(self) -> bool:
        """Whether the cluster keeps tasks on cores. Raises SbtrainError when Slurm does not
        answer."""
        ...

    def awaited(self, job_id: str) -> bool:
        """Whether another job of the user's waits for this one to complete, and would never
        start if that did not come. Raises SbtrainError when Slurm does not answer."""
        ...
