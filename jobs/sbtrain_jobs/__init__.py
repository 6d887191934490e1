"""What runs inside a job: supervisor, node agent, rendezvous, step clock, checkpoints.

A training script needs one name of it: ``from sbtrain_jobs import join``.
"""

import sys

TYPE_CHECKING = False  # typing itself may be a file of the user's
if TYPE_CHECKING:
    from sbtrain_jobs.training.session import Run, join

__all__ = ["Run", "join"]

if sys.version_info < (3, 9):  # noqa: UP036 - any interpreter may find us
    raise ImportError(f"join() needs Python 3.9 or newer, and this is {sys.version}")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sbtrain_jobs.training import session

    return getattr(session, name)
