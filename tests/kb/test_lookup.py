from forkpoint.knowledge.base import EntryKind, find, suggest
from looping import for_each

WATCHDOG = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, "
    "NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)
DUMP_SIGNAL = (
    "and we will try our best to dump the debug info. Last enqueued NCCL work: 5, last completed NCCL work: 5."
)

# One sample for every kind of line: what stands in front is part of it.
SAMPLES = [
    ("watchdog-timeout", f"[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] {WATCHDOG}"),
    ("hccl-timeout", "[rank3]:[E compiler_depend.ts:421] Work WorkHCCL(SeqNum=3, OpType=BROADCAST) ran for 60 ms"),
    (
        "watchdog-status",
        "[PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence id: 1580",
    ),
    (
        "watchdog-status",
        "[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1580, last",
    ),
    (
        "watchdog-status",
        "[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 1] Timeout at NCCL work: 158046, last enqueued",
    ),
    ("watchdog-teardown", "[Rank 4] Some NCCL operations have failed or timed out. Due to the asynchronous nature of"),
    ("watchdog-terminated", "[Rank 0] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory"),
    ("async-exception", "[Rank 3] Collective WorkNCCL(SeqNum=5) raised the following async exception: NCCL error: x"),
    ("remote-error", "[PG ID 0 PG GUID 0 Rank 1]  remote error detected from rank: 3"),
    (
        "blocking-wait-timeout",
        "[Rank 0] Work WorkNCCL(SeqNum=2) timed out in blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).",
    ),
    ("no-watchdog", "TORCH_NCCL_BLOCKING_WAIT is enabled, NO watchdog thread is created."),
    ("monitoring-disabled", "monitor thread is disabled, but would have terminated the process"),
    (
        "heartbeat-stuck",
        "[PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in",
    ),
    (
        "heartbeat-stuck",
        "[PG 5 Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
    ),
    ("heartbeat-terminate", "Terminating the process after attempting to dump debug info, due to collective timeout"),
    (
        "gil-hang",
        "[E ProcessGroupNCCL.cpp:1400] Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
    ),
    ("fr-dump-signal", f"Received a dump signal due to a collective timeout from  rank 3 {DUMP_SIGNAL}"),
    (
        "fr-dump-signal",
        "[PG 0 Rank 1] Received a global dump signal from rank 3, and will start to dump the debug info.",
    ),
    ("fr-observed-remote", "Observed flight recorder dump signal from another rank via TCPStore."),
    ("fr-first-signal", "[PG ID 0 PG GUID 0 Rank 1] First PG on this rank to signal dumping."),
    (
        "fr-preparing",
        "[PG ID 0 PG GUID 0 Rank 6] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1",
    ),
    (
        "fr-written",
        "[I FlightRecorder.cpp:40] Finished writing Flight Recorder debug info to /dumps/comm_lib_trace_rank_3",
    ),
    ("fr-write-error", "Error opening file for writing Flight Recorder debug info: /missing/dir/rank_3"),
    ("fr-dump-timeout", "Future for Flight recorder dump in heartbeatMonitor timed out after 15000 ms"),
    ("fr-disabled", "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled."),
    ("fr-stack", "[rank0]:[E1115 01:00:00.000000000 ProcessGroupNCCL.cpp:730] Stack trace of the failed collective: "),
    ("fr-stack", "#2 buggy from collective_mismatch.py:8"),
    ("store-gone-while-polling", 'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut'),
    ("desync-report", "\t - [0] Timeout at collective: ALLREDUCE, #3"),
    ("desync-report", "     [1] finished collective #2, but didn't join collective #3 (count from 1)"),
    ("nccl2-timeout", "[TC][rank=3][name=main_comm] Operation timed out after 60000 ms"),
    ("nonblocking-timeout", "NCCL timeout in: NCCLUtils.cpp:40"),
    ("unique-id", "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store"),
    ("store-clients", "DistStoreError: Timed out after 2 seconds waiting for clients. 1/3 clients joined."),
    ("store-wait-timeout", "DistStoreError wait timeout after 1000ms, keys: /default_pg/0//cuda//0"),
    (
        "store-connect",
        "[c10d] The client socket has timed out after 2000ms while trying to connect to (127.0.0.1, 29699).",
    ),
    ("store-port-in-use", "port: 29688, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"),
    (
        "tcpstore-broken",
        "[c10d] recvValue failed on SocketImpl(fd=76, addr=[localhost]:60950, remote=[localhost]:29500)",
    ),
    (
        "store-barrier",
        "Timed out initializing process group in store based barrier on rank: 0, for key: k (world_size=8",
    ),
    ("elastic-root", "Root Cause (first observed failure):"),
    ("elastic-failed", "api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 33054) of binary: /usr/bin/python3"),
    ("elastic-closing", "api.py:900] Sending process 33051 closing signal SIGTERM"),
    ("elastic-table", "  rank      : 10 (local_rank: 2)"),
    ("elastic-table", "  exitcode  : -9 (pid: 22127)  (SIGKILL)"),
    ("elastic-signal", "SignalException: Process 22120 got signal: 15"),
    ("elastic-rendezvous", "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the"),
    (
        "socket-closed",
        "u:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n1<57557>",
    ),
    (
        "socket-connect",
        "NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort",
    ),
    ("socket-retry", "NCCL INFO socketPollConnect: connect returned Connection refused, retrying (3/34) after sleep"),
    ("ib-async", "n:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error"),
    ("nccl-truncated", "n1:1:2 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 1024 bytes instead of 256"),
    ("nccl-duplicate-gpu", "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000"),
    ("nccl-version-mismatch", "NCCL WARN Mismatched NCCL version detected : rank 3 version 22703 rank 0 version 22602"),
    ("nccl-cuda-failure", "[1] misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'"),
    ("nccl-shm", "NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes"),
    ("nccl-ibv-call", "container:815:864 [0] misc/ibvwrap.cu:220 NCCL WARN Call to ibv_get_async_event failed"),
    (
        "nccl-proxy",
        "proxy.cc:1519 NCCL WARN [Proxy Service 0] Failed to execute operation Connect from rank 0, retcode 2",
    ),
    ("nccl-ras", "[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1"),
    (
        "nccl-init",
        "NCCL INFO ncclCommInitRank comm 0x1c2ea230 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 40 - Init START",
    ),
    ("nccl-version", "h:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9"),
    ("nccl-bootstrap", "h:1:1 [0] NCCL INFO Bootstrap : Using enp45s0f0:146.155.155.83<0>"),
    ("nccl-net-using", "h:1:1 [0] NCCL INFO NET/Socket : Using [0]enp67s0:192.168.50.21<0>"),
    ("nccl-channel", "h:1:1 [4] NCCL INFO Channel 00/0 : 1[1] -> 4[4] [receive] via NET/IBext_v8/4/GDRDMA"),
    ("nccl-coll-call", "h:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x0 recvbuff 0x0 count 2 datatype 7 op 0"),
    ("nccl-channels-count", "h:1:1 [0] NCCL INFO 2 coll channels, 2 p2p channels, 2 p2p channels per peer"),
    ("nccl-warn", "h:1:1 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>"),
    ("cuda-error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("cuda-device-assert", "Indexing.cu:1237: f: block: [0,0,0], thread: [3,0,0] Assertion `srcIndex < n` failed."),
    ("cuda-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity"),
    ("ddp-reduction", "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new"),
    ("not-contiguous", "ValueError: Tensors must be contiguous"),
    ("dataloader-killed", "RuntimeError: DataLoader worker (pid 56811) is killed by signal: Bus error."),
    ("python-fatal", "Fatal Python error: Segmentation fault"),
    ("faulthandler", "Thread 0x00007f42563bb6c0 (most recent call first):"),
    ("faulthandler", '  File "train.py", line 6 in train_step'),
    ("pyspy", 'Thread 835995 (active): "MainThread"'),
    ("pyspy", "    broadcast (torch/distributed/distributed_c10d.py:1191)"),
    ("gdb", 'Thread 2 (Thread 0x7effed0b96c0 (LWP 25783) "python3"):'),
    ("c10-frame", "frame #2: c10d::ProcessGroupNCCL::watchdogHandler() + 0x233 (0x1554e9e16333 in libtorch_cuda.so)"),
    ("host-oom-kill", "[1.0] Out of memory: Killed process 31631 (python3) total-vm:123456kB, anon-rss:98765kB"),
    ("gpu-lost", "               NVRM: fallen off the bus and is not responding to commands."),
    ("aer", "[  +0.000316] pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0"),
    ("mlx5-link", "kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
    ("mlx5-event", "mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W)."),
    (
        "segfault",
        "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in",
    ),
    ("peermem", "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping"),
    ("soft-lockup", "watchdog: BUG: soft lockup - CPU#0 stuck for 25s! [pt_data_pin:2273422]"),
    ("hung-task", "INFO: task jfsmount:136986 blocked for more than 120 seconds."),
    ("nfs-stall", "nfs: server 7.247.192.16 not responding, timed out"),
    (
        "slurm-cancelled",
        "slurmstepd: error: *** JOB 37361369 ON n5146 CANCELLED AT 2021-03-15T18:00:46 DUE TO PREEMPTION ***",
    ),
    ("slurm-task-exit", "srun: error: SH-IDC1-10-140-24-95: task 0: Exited with exit code 1"),
    ("slurm-oom", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=14604003.0 cgroup."),
    ("slurm-node-failure", "srun: error: Node failure on gpu-017"),
    ("k8s-oomkilled", "    Reason:       OOMKilled"),
    ("k8s-evicted", "The node was low on resource: memory."),
    ("ray-dedup", "(WorkerDict pid=71, ip=10.0.0.3) step done [repeated 4x across cluster]"),
    ("pg-prefix", "[PG ID 2 PG GUID 9 Rank 2] using GPU 2"),
    ("c10-prefix", "[rank3]:[W1115 01:29:29.893830875 something.cpp:469] hello"),
]


@for_each(("code", "line"), SAMPLES, ids=[f"{code}-{n}" for n, (code, _) in enumerate(SAMPLES)])
def test_a_pasted_line_is_recognised(code: str, line: str) -> None:
    assert find(line)[0].code == code


@for_each(
    "prefix",
    [
        "[rank12]: ",
        "11: ",
        "(WorkerDict pid=4009, ip=10.0.0.2) ",
        "svc-1  | ",
        "2026-03-01T10:00:00.1Z stderr F ",
        "\x1b[31m",
    ],
)
def test_what_a_launcher_puts_in_front_does_not_matter(prefix: str) -> None:
    assert find(prefix + WATCHDOG)[0].code == "watchdog-timeout"


@for_each(
    ("line", "codes"),
    [
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s", ["119", "xid-line"]),
        ("NVRM: Xid (PCI:0000:38:00 GPU-I:02 GPU-CI:01): 43, pid=1, name=python, Ch 8", ["43", "xid-line"]),
        ("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress", ["12028", "sxid-line"]),
        ("node-2:5:9 [0] NCCL INFO proxy.cc:858 -> 6 [Proxy Thread]", ["ncclRemoteError", "nccl-error-chain"]),
        (
            "NET/IB : Got completion from peer 10.2.0.5<33> with error 12, opcode 0",
            ["IBV_WC_RETRY_EXC_ERR", "ib-completion"],
        ),
        (
            "NET/IB: Got completion from peer 10.0.0.1<4> with status=5 opcode=0",
            ["IBV_WC_WR_FLUSH_ERR", "ib-completion"],
        ),
        ("NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_LOC_PROT_ERR(4)", ["IBV_WC_LOC_PROT_ERR"]),
        ("NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.", ["NCCL_CUMEM_ENABLE", "nccl-env-set"]),
        ("ncclSystemError: System call (e.g. socket, malloc) failed", ["ncclSystemError"]),
    ],
)
def test_a_line_that_names_something_leads_there_first(line: str, codes: list[str]) -> None:
    assert [entry.code for entry in find(line)][: len(codes)] == codes


def test_a_follow_on_xid_leads_to_the_one_that_caused_it() -> None:
    line = "NVRM: Xid (PCI:0000:38:00): 45, pid=29, name=python, Ch 00000008 caused by previous Xid 48"

    assert [entry.code for entry in find(line)] == ["48", "45", "xid-line"]


@for_each("query", ["79", " 79 ", "xid79", "Xid 79", "XID_79", "xid-79", "Xid: 79", "079"])
def test_an_xid_may_be_spelled_as_people_do(query: str) -> None:
    assert (find(query)[0].kind, find(query)[0].code) == (EntryKind.XID, "79")


def test_a_bare_number_is_an_xid_and_says_what_else_it_could_be() -> None:
    assert [entry.query for entry in find("6")] == ["xid6", "ncclRemoteError", "IBV_WC_MW_BIND_ERR"]


@for_each(
    ("query", "code"),
    [
        ("Divergent Path", "divergent-path"),
        ("host_stall", "host-stall"),
        ("nccl_timeout", "NCCL_TIMEOUT"),
        ("ncclTimeout", "ncclTimeout"),
        ("NCCLREMOTEERROR", "ncclRemoteError"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
        ("ib_completion_221", "ib-completion"),
    ],
)
def test_case_and_separators_do_not_matter(query: str, code: str) -> None:
    assert find(query)[0].code == code


@for_each(
    ("query", "near"),
    [
        ("NCCL_TIMOUT", "NCCL_TIMEOUT"),
        ("divergant-path", "divergent-path"),
        ("ncclRemotError", "ncclRemoteError"),
        ("TORCH_NCCL_TRACE_BUFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("stragler", "straggler"),
    ],
)
def test_a_misspelling_is_unknown_and_the_right_spelling_comes_first(query: str, near: str) -> None:
    assert find(query) == ()
    assert suggest(query)[0] == near


@for_each("query", ["0x4f", "999999", "hello world", "(", "\x00", "é" * 200, "xid", "loss 3.2 step 79"])
def test_what_is_unknown_is_not_guessed_at(query: str) -> None:
    assert find(query) == ()


def test_a_hostile_line_ends() -> None:
    pieces = ["Thread 0x", "1" * 50_000, "[PG " * 5_000, " " * 50_000, "frame #1: " + "a + " * 20_000, "#1 " * 20_000]

    for piece in pieces:
        find(piece)
        suggest(piece)
