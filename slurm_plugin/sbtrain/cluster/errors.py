"""Errors of the private cluster.

SbtrainError
└── ClusterError              the private cluster cannot do what was asked
    ├── SlurmNotInstalledError    a program of Slurm or munge is not on this host
    └── ClusterStartError         a daemon would not start, or the nodes did not answer
"""

from __future__ import annotations

from sbtrain_perf.errors import SbtrainError


class ClusterError(SbtrainError):
    exit_code = 50


class SlurmNotInstalledError(ClusterError):
    exit_code = 51


class ClusterStartError(ClusterError):
    exit_code = 52
