"""`python -m sbtrain_jobs.node_agent PLAN_JSON`."""

import sys

from sbtrain_staging.import_order import own_packages_first

if __name__ == "__main__":
    own_packages_first()
    from sbtrain_jobs.node_agent.agent import main

    sys.exit(main(sys.argv[1:]))
