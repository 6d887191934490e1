"""The commands of sbtrain, and the name by which a training script knows it.

A training script needs one name of it: ``from sbtrain import join``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself may be a file of the user's
if TYPE_CHECKING:
    from sbtrain_jobs import Run, join

__all__ = ["Run", "join"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import sbtrain_jobs

    return getattr(sbtrain_jobs, name)
