"""`python -m sbtrain_staging`."""

import sys

from sbtrain_staging.commandline import main

if __name__ == "__main__":
    sys.exit(main())
