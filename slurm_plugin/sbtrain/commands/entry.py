"""One call of a command: from what it does to its exit status, whatever goes wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable

from sbtrain.commands.streams import StdoutError
from sbtrain_perf.errors import SbtrainError
from sbtrain_staging.errors import StagingError

INTERRUPTED = 130


def exit_status(body: Callable[[], int], *, who: str, interrupted: str = "interrupted") -> int:
    """That of the body, or of the error that ended it, which is said on stderr.

    Args:
        interrupted: what Ctrl-C means where the KeyboardInterrupt does not say.
    """
    try:
        status = body()
        sys.stdout.flush()
        return status
    except (SbtrainError, StagingError) as error:
        from sbtrain.commands.report import report

        return report(error)
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"{who}: {stop.args[0] if stop.args else interrupted}\n")
        return INTERRUPTED
    except ModuleNotFoundError as error:
        from sbtrain.commands.report import missing_package

        return missing_package(error)
    except StdoutError as error:
        from sbtrain.commands.report import stdout_failed

        return stdout_failed(error)
