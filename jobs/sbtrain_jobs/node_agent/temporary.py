"""The folder for temporary files of one node's trainers in one attempt: its own, so that
what killed trainers leave behind can be removed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sbtrain_jobs.layouts.environment import TEMPORARY_PREFIX
from sbtrain_perf.request import Plan
from sbtrain_staging.errors import StagingError

# Python's multiprocessing puts sockets into it, and the address of one has at most 107
# bytes (unix(7)): this leaves room for /pymp-xxxxxxxx/listener-xxxxxxxx.
MOST_CHARACTERS = 70
NOT_SAID = ("", "/tmp")  # noqa: S108 - slurmstepd sets the latter where the job has no TMPDIR


@contextlib.contextmanager
def temporary_folder(
    plan: Plan, attempt_folder: Path, environ: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """What the trainers' environment gains, and the folder's removal at the end.

    It lies in the node's scratch; where there is none, in the attempt's folder; where the
    path of that is too long for sockets, in the node's own folder for temporary files. A
    TMPDIR that the user has set is left as it is.
    """
    own = environ.get("TMPDIR", "") not in NOT_SAID
    folder = None if own else _made(plan, attempt_folder, environ)
    if folder is None:
        yield {}
        return
    try:
        yield {"TMPDIR": str(folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(plan: Plan, attempt_folder: Path, environ: Mapping[str, str]) -> Path | None:
    parents = [attempt_folder.absolute(), Path(tempfile.gettempdir())]
    if plan.scratch_path is not None:
        from sbtrain_staging.cache.scratch import locate

        with contextlib.suppress(StagingError, OSError):
            parents.insert(0, locate(plan.scratch_path, environ))
    for parent in parents:
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent))
            if len(str(folder)) <= MOST_CHARACTERS:
                return folder
            folder.rmdir()
    return None
