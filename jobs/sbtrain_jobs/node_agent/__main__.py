"""`python -m sbtrain_jobs.node_agent PLAN_JSON`."""

import sys

from sbtrain_jobs.node_agent.agent import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
