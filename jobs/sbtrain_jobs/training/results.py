"""What a script reports of its run: told to the supervisor, and written into the run folder."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping

from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.training.reports import Reports
from sbtrain_staging.publish import publish_bytes

_log = logging.getLogger("sbtrain.run")


class Results:
    """Whatever cannot be kept is a warning."""

    def __init__(self, run_folder: RunFolder | None, reports: Reports) -> None:
        self._run_folder = run_folder
        self._reports = reports
        self._metrics: dict[str, float] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        """The last value of each name counts."""
        for name, value in metrics.items():
            try:
                number = float(value)
            except Exception as error:  # whatever the script's own types raise
                _log.warning(
                    "sbtrain: %s is %r, which is no number (%s): not reported",
                    name,
                    value,
                    error,
                )
                continue
            if math.isfinite(number):
                self._metrics[name] = number
            else:
                _log.warning("sbtrain: %s is %s: not reported", name, number)

    def publish(self, *, step: int, seconds: float) -> None:
        """seconds: since the last step ended."""
        if self._metrics:
            self._reports.phase("evaluate", seconds, step=step, metrics=self._metrics)
        if self._run_folder is None:
            return
        target = self._run_folder.result
        if not self._metrics and target.exists():
            return  # a later part of the script joined too, and has nothing to say
        text = json.dumps(self._metrics, indent=2) + "\n"
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            publish_bytes(target, text.encode())
        except OSError as error:
            _log.warning(
                "sbtrain: cannot write the results %s to %s: %s",
                json.dumps(self._metrics),
                target,
                error.strerror,
            )
