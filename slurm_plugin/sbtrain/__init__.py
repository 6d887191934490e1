"""The commands of sbtrain, and the name by which a training script knows it.

A training script needs one name of it: ``from sbtrain import join``.
"""

import sys

TYPE_CHECKING = False  # typing itself may be a file of the user's
if TYPE_CHECKING:
    from sbtrain_jobs import Run, join

__all__ = ["Run", "join"]

if sys.version_info < (3, 9):  # noqa: UP036 - any interpreter may find us
    import sbtrain_jobs  # noqa: F401 - says what it needs


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import sbtrain_jobs

    return getattr(sbtrain_jobs, name)
