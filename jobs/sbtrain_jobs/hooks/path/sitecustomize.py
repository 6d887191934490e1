# mypy: ignore-errors
"""Loads sbtrain_jobs.hooks where a rank's Python looks for a framework, and does nothing else.

Every Python that a trainer starts runs this first, whatever its version: nothing here may fail,
print or take time. A sitecustomize that stands behind this one runs as if this were not there.
"""

import os
import sys

FRAMEWORKS = frozenset(
    (
        "torch",
        "accelerate",
        "tensorflow",
        "keras",
        "tf_keras",
        "jax",
        "orbax",
        "horovod",
        "mpi4py",
    )
)
WITNESS = "SBTRAIN_WITNESS"  # the process that stands for the rank; those it starts do not


class FirstImport:
    """Stands first on sys.meta_path, and finds nothing itself."""

    find = None

    def find_spec(self, name, path=None, target=None):
        if self.find is None:
            if name not in FRAMEWORKS:
                return None
            self.find = find_nothing
            try:
                from sbtrain_jobs.hooks.imports import find_watched

                self.find = find_watched
            except Exception:  # whatever this interpreter lacks
                return None
        return self.find(name, path, target)


def find_nothing(name, path, target):
    return None


def is_rank(environ):
    """Whether this process is a trainer of the job that it runs in; where the script starts
    those itself, whether it may be one."""
    if environ.get("SBTRAIN_JOB_ID") != environ.get("SLURM_JOB_ID"):
        return False
    if not environ.get("SBTRAIN_ROLE"):
        return bool(environ.get("SBTRAIN_CONTROL"))
    return environ.setdefault(WITNESS, str(os.getpid())) == str(os.getpid())


def next_one():
    """Run the sitecustomize that would have been found without this folder."""
    here = os.path.dirname(__file__)
    sys.path[:] = [one for one in sys.path if one != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if "sitecustomize" not in str(error):
            raise
    finally:
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


if sys.version_info >= (3, 9) and is_rank(os.environ):
    sys.meta_path.insert(0, FirstImport())
next_one()
