"""Why Slurm ends an attempt, as far as that is known, and the ledger's lines about it."""

from __future__ import annotations

from sbtrain_jobs.ending.cause import CauseFound
from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_jobs.ending.slurms_words import SlurmsWords
from sbtrain_jobs.record.run_record import RunRecord

_IN_WORDS = {"none": "Slurm gives no reason", "unknown": "Slurm does not say why"}


def is_named(cause: EndCause) -> bool:
    return cause not in ("none", "unknown")


class EndNotice:
    """What was heard of the end, and what Slurm named as its cause: first, and now.

    Attributes:
        first_cause: as Slurm has written it, where it answers only that the job is requeued.
        detail: how it was heard of.
    """

    def __init__(self, record: RunRecord, words: SlurmsWords) -> None:
        self._record = record
        self._words = words
        self.cause: EndCause = "none"
        self.first_cause: EndCause = "none"
        self.detail = ""
        self._problem = ""
        self._written: EndCause | None = None

    def learn(self, found: CauseFound) -> bool:
        """Whether Slurm has named a cause. A cancel stays one, and what was named stays."""
        named = is_named(found.cause)
        if self.cause != "cancelled" and (named or not is_named(self.cause)):
            self.cause = found.cause
            if not is_named(self.first_cause):
                self.first_cause = self._as_written(found.cause)
        self._problem = found.problem
        return named

    def write(self, *, aloud: bool = True) -> None:
        """Once, and once more when the cause comes to be named."""
        if self._written is not None and (is_named(self._written) or not is_named(self.cause)):
            return
        self._written = self.cause
        cause = self.first_cause if self.cause == "requeued" else self.cause
        self._record.write("notice", cause=cause, detail=self.detail)
        if not aloud:
            return
        problem = f" ({self._problem})" if self._problem and self.cause == "unknown" else ""
        self._record.progress.say(f"cause: {_IN_WORDS.get(cause, cause)}{problem}")

    def _as_written(self, cause: EndCause) -> EndCause:
        told = cause == "requeued" and self._words.tell_of_preemption()
        return "preempted" if told else cause
