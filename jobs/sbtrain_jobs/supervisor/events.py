"""What the supervisor is told while an attempt runs, and the queue that brings it."""

from __future__ import annotations

import queue

from sbtrain_jobs.ending.cause import CauseFound
from sbtrain_jobs.supervisor.script_process import ScriptEnded
from sbtrain_jobs.supervisor.srun_step import StepEnded
from sbtrain_jobs.wire.control import ControlEvent

Event = ControlEvent | StepEnded | ScriptEnded | CauseFound | int  # a signal's number
Events = queue.SimpleQueue[Event]
