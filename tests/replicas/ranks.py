"""Runs the jobs of test_replicas.py as consensus/ranks.py does: torch is imported once, every rank is a fork.

python -m replicas.ranks
"""

import sys

from consensus.ranks import Job, run
from replicas.jobs import JOBS

if __name__ == "__main__":
    run([Job(*told) for told in JOBS if told[0] in sys.argv[1:] or not sys.argv[1:]], at_once=2)
