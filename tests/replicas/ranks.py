"""Runs the jobs of test_replicas.py as consensus/ranks.py does: torch is imported once, every rank is a fork.

python -m replicas.ranks
"""

import json
import sys
import time

from consensus.ranks import Job, end, is_done, read, start
from replicas.jobs import JOBS

AT_ONCE = 2


def main() -> None:
    waiting = [Job(name, world, answer) for name, world, answer in JOBS if name in sys.argv[1:] or not sys.argv[1:]]
    running: list[Job] = []
    done: dict[str, list[dict[str, object]]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(waiting.pop(0))
                start(running[-1])
            for job in [job for job in running if is_done(job)]:
                running.remove(job)
                done[job.name] = [read(job, rank) for rank in range(job.world)]
            time.sleep(0.02)
    finally:
        for job in running:
            end(job)
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main()
