"""`python -m sbtrain_staging`."""

import sys

from sbtrain_staging.import_order import own_packages_first

if __name__ == "__main__":
    own_packages_first()
    from sbtrain_staging.commandline import main

    sys.exit(main())
