"""How the packages of sbtrain's extras come to the Python that runs: by their own names, for
sbtrain itself is on no index, and a user's program runs in an interpreter that may lack it.

This file imports the standard library alone, from Python 3.9 on.
"""

from __future__ import annotations

import re
import sys

# As in pyproject.toml, which a test holds.
PACKAGES = {
    "perf": ("h5py", "scikit-learn", "scipy"),
    "staging": ("h5py", "mpi4py", "xxhash"),
    "mpich": ("mpich",),
    "tensorflow": ("tensorflow",),
}

# Of a whole block: what is damaged fails by its checksum before.
_NEWER_HDF5 = re.compile(r"bad version number for \w+( \w+)* message")


def newer_h5py(said: str) -> str:
    """The command that brings an h5py which reads a file of which this one has said so; empty
    where it is not too old. HDF5 2.0 is the first whose own format older ones do not read.
    """
    return pip_install("h5py>=3.16") if _NEWER_HDF5.search(said) else ""


def pip_install(*packages: str) -> str:
    """The command that installs packages where this process finds them."""
    import shlex

    named = map(shlex.quote, packages)
    return " ".join((shlex.quote(sys.executable or "python3"), "-m pip install", *named))


def install_extras(*extras: str) -> str:
    """The same for all packages of extras, which a comment behind it names."""
    packages = dict.fromkeys(name for extra in extras for name in PACKAGES[extra])
    noun = "extra" if len(extras) == 1 else "extras"
    return f"{pip_install(*packages)} # the {noun} {' and '.join(extras)}"
