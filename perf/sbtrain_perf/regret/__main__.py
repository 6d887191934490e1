"""``python -m sbtrain_perf.regret``; says which extra is missing where one is."""

import sys

from sbtrain_perf.errors import MissingExtraError, needs_extra

if __name__ == "__main__":
    try:
        with needs_extra("perf", purpose="judging choices on public measurements"):
            from sbtrain_perf.regret.commandline import main
    except MissingExtraError as error:
        sys.stderr.write(f"sbtrain_perf.regret: {error.message}\nhint: {error.hint}\n")
        sys.exit(error.exit_code)
    sys.exit(main())
