"""The same random calls with `--train-launch script`: what sbatch does with them, and beyond
it what sbtrain says that it adds.

Left out are sbtrain's own lines on stderr, its own words for what sbatch would refuse too, the
mark in the comment, the path of the script (the copy in the run folder is compared to the
byte) and its arguments, and what a job around the call has left in the environment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass

from fidelity_checks.both import Pair, Seen, do_both, done, prepared
from fidelity_checks.calls import OUTER, Call
from fidelity_checks.place import Place

_WAY = ("--train-launch=script",)
_MARK = re.compile(r" ?\[sbtrain:[^]]*\]")
_OPTIONS = re.compile(r"(?<=^options ).*", re.M)
_OURS = re.compile(r"^(?:sbtrain: |hint: |sbatch: error: No PATH env).*\n", re.M)
_ADDS = re.compile(r"^sbtrain: adds --([a-z-]+)", re.M)
_PLACES = re.compile(r" AllocNode:Sid=\S*| Command=.*?(?= WorkDir=)| Comment=(?= )")
_DONE_BY_US = {
    "argv",
    "parsable",
    "quiet",
    "wait",
    "wrap",
    "job-name",
}  # the name is compared in the job's record


@dataclass(slots=True, kw_only=True)
class ScriptPair(Pair):
    """copy: the script in the run folder, where there is a run. added: the options that are
    listed as additions."""

    copy: bytes | None = None
    added: frozenset[str] = frozenset()

    @property
    def differences(self) -> list[str]:
        return self._less(self.sbatch).differences(self._less(self.sbtrain))

    def _less(self, seen: Seen) -> Seen:
        """Without what sbtrain adds, or says."""
        if "test-only" in self.sbatch.options:  # asked and told in sbtrain's own way
            return dataclasses.replace(seen, stderr="", options="")
        refused = self.sbatch.code == self.sbtrain.code != 0
        seen = dataclasses.replace(
            seen,
            read=0 if refused else seen.read,
            stderr="" if refused or self.call.talks else _OURS.sub("", seen.stderr),
            options=_OPTIONS.sub(lambda found: self._job_options(found[0]), seen.options),
        )
        if self.copy is None:
            return seen
        return dataclasses.replace(
            seen,
            record=_PLACES.sub("", _MARK.sub("", seen.record)),
            environment=self._own(seen.environment),
            script=self.copy if seen.script == self.sbtrain.script else seen.script[:-1],
        )

    def _job_options(self, line: str) -> str:
        component, _, text = line.partition(" ")
        options = json.loads(text)
        if "comment" in options:
            options["comment"] = _MARK.sub("", options["comment"])
        kept = {k: v for k, v in options.items() if v and k not in self.added | _DONE_BY_US}
        return f"{component} {json.dumps(kept)}"

    def _own(self, environment: bytes) -> bytes:
        """Without what an addition sets, and what a job around the call had."""
        gone = {f"SLURM_{name.replace('-', '_').upper()}" for name in self.added}
        if "SLURM_JOB_ID" in self.call.environ:
            gone |= OUTER.keys()
        entries = environment[4:].split(b"\0")  # behind their number
        kept = (one for one in entries if os.fsdecode(one.partition(b"=")[0]) not in gone)
        return b"\0".join(kept)


def do_both_script(place: Place, call: Call) -> ScriptPair:
    pair = do_both(place, call, train=_WAY)
    copies = [*place.folder.glob("call/.sbtrain/runs/*/script/*")]
    found = ScriptPair(
        call=call,
        sbatch=pair.sbatch,
        sbtrain=pair.sbtrain,
        copy=copies[0].read_bytes() if copies else None,
    )
    if any(line.startswith("options: ") for line in found.differences):
        folder = prepared(place, call)
        told = done(place, call, folder, place.sbtrain, train=(*_WAY, "--train-dry-run"))
        found.added = frozenset(_ADDS.findall(told.stderr))
    return found
