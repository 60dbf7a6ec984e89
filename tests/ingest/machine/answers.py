"""Answers of NCCL's RAS client, as its documents and source print them."""

TABLE = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

"""

FEW_BEHIND = f"""{TABLE}\
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 7 -- GPU 7 managed by process 483079 on node 172.16.64.210
"""

ONE_AHEAD = f"""{TABLE}\
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 11
  Rank 9 has launched up to operation 12 -- GPU 1 (NVML 5) managed by process 77 on node 10.0.0.2

  Communicator ranks have different Broadcast operation counts
  31 ranks have launched up to operation 3
  Rank 9 has not launched any operations -- GPU 1 (NVML 5) managed by process 77 on node 10.0.0.2

"""

STATUSES = """\
#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  4 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 507285 on node 172.16.64.210
  Rank 8 -- GPU 0 managed by process 1598388 on node 172.16.64.212
  Rank 16 -- GPU 0 managed by process 3500071 on node 172.16.64.213
  Rank 24 -- GPU 0 managed by process 2405067 on node 172.16.64.222
  2 ranks have status FINALIZE
  Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210
  Rank 20 -- GPU 4 managed by process 3500075 on node 172.16.64.213
"""

UNRESPONSIVE = """\
Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""

DEAD = """\
Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

"""

MONITOR = """\
RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...
================================================================
 [2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1
"""

MONITOR_JSON = """\
{
  "timestamp": "2025-12-19 13:07:07",
  "group": "LIFECYCLE",
  "event": "PEER_DEAD",
  "peer": {
    "host": "172.16.64.245",
    "pid": 1524345,
    "cuda_devs": [1],
    "nvml_devs": [1]
  },
  "details": ""
}
"""


def rank(number: int, all_reduces: int) -> str:
    return f"""\
        {{
          "rank": {number},
          "host": "172.16.64.245",
          "pid": {1524344 + number},
          "cuda_dev": {number},
          "nvml_dev": {number},
          "status": {{
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          }},
          "collective_counts": {{
            "Broadcast": 3,
            "AllReduce": {all_reduces}
          }}
        }}"""


def communicator(name: str, counts: list[int], *, dead: str = "false") -> str:
    ranks = ",\n".join(rank(number, count) for number, count in enumerate(counts))
    return f"""\
    {{
      "hash": "{name}",
      "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
      "size": {len(counts) + 1},
      "ranks_count": {len(counts)},
      "missing_ranks_count": 1,
      "ranks": [
{ranks}
      ],
      "missing_ranks": [
        {{
          "rank": {len(counts)},
          "host": "172.16.64.245",
          "pid": {1524344 + len(counts)},
          "cuda_dev": {len(counts)},
          "nvml_dev": {len(counts)},
          "status": {{
            "unresponsive": true,
            "considered_dead": {dead}
          }}
        }}
      ]
    }}"""


def answer(*communicators: str) -> str:
    inside = ",\n".join(communicators)
    return f"""\
{{
  "nccl_version": "2.29.1",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2025-12-19 13:06:53",
  "communicators_count": {len(communicators)},
  "communicators": [
{inside}
  ],
  "ras": {{
    "collection_time_sec": 0.000,
    "timeouts_count": 2
  }}
}}
"""


JSON = answer(communicator("0xae94423cfbb2ef4a", [12, 11, 12]), communicator("0xbe", [4, 4], dead="true"))
TEXTS = (FEW_BEHIND, ONE_AHEAD, STATUSES, UNRESPONSIVE, DEAD, MONITOR)
