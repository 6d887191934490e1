"""What becomes of the job when the user's own script has ended, or is to end: a pure function.

Its exit status is the job's, as under sbatch; the job goes back into the queue only where the
run declares how it resumes, and was told to stop.
"""

from __future__ import annotations

from dataclasses import replace

from sbtrain_jobs.ending.outcome import ScriptEnd
from sbtrain_jobs.ending.verdict import TAKEN, Facts, Verdict, after_notice, exit_status, judge


def judge_script(facts: Facts, script: ScriptEnd) -> Verdict:
    """The verdict.

    Args:
        facts: failed_code is of what sbtrain itself did, before the script began.
    """
    if facts.failed_code is not None:
        return judge(facts)
    if script.code is None:
        return after_notice(facts)
    own = Verdict(
        action="end",
        exit_code=exit_status(script.code),
        cause="completed" if script.code == 0 else "failed",
        signal=max(0, -script.code),
    )
    if facts.steps_done and facts.cause not in ("cancelled", "requeued", "node-fail"):
        return own
    told = facts.noticed or facts.cause in TAKEN
    if not told:
        return own
    if facts.cause in ("cancelled", "requeued", "node-fail") or not facts.resumable:
        return own if facts.cause == "none" else replace(own, cause=facts.cause)
    found = after_notice(facts)
    if found.action != "end":
        return found
    # No requeue: what is to be said is said, and a script that failed ends as it did.
    ends = own if script.code else found
    return replace(ends, cause=found.cause, words=found.words)
