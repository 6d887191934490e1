"""Imports numpy with one BLAS thread. Planning multiplies no large matrices, and starting a
pool of threads costs as much CPU time as the rest of numpy's import; on a login node that is
in front of every submission. The environment is left as it was: jobs inherit it."""

import os

_THREADS = "OPENBLAS_NUM_THREADS"

_given = os.environ.get(_THREADS)
os.environ[_THREADS] = _given or "1"
try:
    import numpy as numpy
finally:
    if _given is None:
        del os.environ[_THREADS]
    else:
        os.environ[_THREADS] = _given
