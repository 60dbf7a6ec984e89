"""Lines as machines printed them: from drivers' and kernels' sources, bug reports and vendors' documents."""

XIDS = {
    "NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 9, TPC 5, SM 0): Out Of Range Address": (
        *(13, "0000:38:00.0", None, None, None),
    ),
    "NVRM: Xid (PCI:0000:08:00): 31, Ch 0000003b, intr 10000000. MMU Fault: ENGINE GRAPHICS HUBCLIENT_SCC faulted @ 0x0_04687000.": (
        *(31, "0000:08:00.0", None, None, None),
    ),
    "NVRM: Xid (PCI:0000:38:00): 43, pid=2924364, name=pt_main_thread, Ch 00000008": (
        *(43, "0000:38:00.0", 2924364, "pt_main_thread", None),
    ),
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149": (
        *(45, "0000:dc:00.0", 1818990, "python3", None),
    ),
    "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.": (
        *(63, "0000:10:1c.0", 1896, None, None),
    ),
    "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": (
        *(79, "0000:05:00.0", None, None, None),
    ),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No": (
        *(94, "0000:01:00.0", 7194, None, "GPU-I:05"),
    ),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 43, pid=7194, name=python, Ch 00000008": (
        *(43, "0000:01:00.0", 7194, "python", "GPU-I:05 GPU-CI:00"),
    ),
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP!": (
        *(119, "0000:9b:00.0", 2024380, "nvidia-smi", None),
    ),
    "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000)": (
        *(149, "0019:01:00.0", None, None, None),
    ),
    "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)": (
        *(149, "0009:01:00.0", None, None, None),
    ),
    "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)": (
        *(154, "0008:01:00.0", None, None, None),
    ),
    "NVRM: Xid (0000:03:00): 14, Channel 00000001": (14, "0000:03:00.0", None, None, None),
}
"""Line -> Xid, bus id, pid, process, MIG instance."""

OTHERS = {
    "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.": ("gpu-lost", "0000:18:00.0", None, None, None),
    "               NVRM: fallen off the bus and is not responding to commands.": ("gpu-lost", None, None, None, None),
    "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)": (
        *("sxid", "0000:85:00.0", None, None, "nvswitch2"),
    ),
    "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0": (
        *("aer", "0000:00:03.0", None, None, "pcieport 0000:00:03.0"),
    ),
    "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0": (
        *("aer", "0000:3b:00.0", None, None, "pcieport 0000:3a:00.0"),
    ),
    "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)": (
        *("aer", "0000:00:03.0", None, None, "pcieport"),
    ),
    "kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT": ("mlx5", "0000:ab:00.0", None, None, "mlx5_5"),
    "kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE": ("mlx5", "0000:ab:00.0", None, None, "mlx5_5"),
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).": (
        *("mlx5", "0000:5c:00.0", None, None, None),
    ),
    "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature": (
        *("mlx5", None, None, None, None),
    ),
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/docker/container123,task_memcg=/docker/container123,task=postgres,pid=12345,uid=1000": (
        *("oom-kill", None, 12345, "postgres", "/docker/container123"),
    ),
    "Out of memory: Killed process 31631 (python3) total-vm:123456kB, anon-rss:98765kB": (
        *("oom-kill", None, 31631, "python3", None),
    ),
    "INFO: task jfsmount:136986 blocked for more than 120 seconds.": ("hung-task", None, 136986, "jfsmount", None),
    "INFO: task kworker/u64:3:4711 blocked for more than 120 seconds.": (
        *("hung-task", None, 4711, "kworker/u64:3", None),
    ),
    "watchdog: BUG: soft lockup - CPU#0 stuck for 25s! [pt_data_pin:2273422]": (
        *("soft-lockup", None, 2273422, "pt_data_pin", None),
    ),
    "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]": (
        *("segfault", None, 2536443, "pt_main_thread", "libnccl.so.2"),
    ),
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing": (
        *("peermem", None, None, None, None),
    ),
    "nfs: server 7.247.192.16 not responding, timed out": ("nfs", None, None, None, "7.247.192.16"),
    "mce: [Hardware Error]: Machine check events logged": ("machine-check", None, None, None, None),
    "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!": (
        *("nvlink", None, None, None, None),
    ),
}
"""Line -> kind, bus id, pid, process, device."""

QUIET = (
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15",
    "NVRM: GPU at PCI:0000:cb:00: GPU-6e1b5bd0-6ee0-4a5c-9c4f-0123456789ab",
    "pcieport 0000:00:01.0: AER: enabled with IRQ 122",
    "EDAC MC: Ver: 3.0.0",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mlx5_core 0000:ab:00.0: firmware version: 28.39.1002",
    "mlx5_core 0000:ab:00.0: mlx5_cmd_out_err:808:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "Memory cgroup out of memory: OOM victim 123 (python) is already exiting. Skip killing the task",
    "the docs say: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "RuntimeError: NVRM: Xid 79",
)
"""Nothing happened."""

HEADERS = {
    "": (None, None),
    "[12345.678901] ": (None, "12345"),
    "[  345.678901] ": (None, "345"),
    "<4>[12345.678901] [T1234] ": (None, "12345"),
    "kern  :warn  : [12345.678901] ": (None, "12345"),
    "4,1234,12345678901,-;": (None, "12345"),
    "[  +0.000316] ": (None, None),
    "[Sun Feb 23 16:24:18 2025] ": (None, "Sun Feb 23 16:24:18 2025"),
    "2025-02-23T16:24:18,123456+00:00 ": (None, "2025-02-23T16:24:18+00:00"),
    "Feb 23 16:24:18 node-7 kernel: ": ("node-7", "Feb 23 16:24:18"),
    "Feb  3 16:24:18 node-7 kernel: [12345.678901] ": ("node-7", "Feb  3 16:24:18"),
    "Feb 23 16:24:18.123456 node-7 kernel: ": ("node-7", "Feb 23 16:24:18"),
    "2025-02-23T16:24:18+0000 node-7.cluster.local kernel: ": ("node-7.cluster.local", "2025-02-23T16:24:18+0000"),
    "Sun 2025-02-23 16:24:18 UTC node-7 kernel: ": ("node-7", "2025-02-23 16:24:18"),
    "node-7: [12345.678901] ": ("node-7", "12345"),
    "10.0.3.7: [Sun Feb 23 16:24:18 2025] ": ("10.0.3.7", "Sun Feb 23 16:24:18 2025"),
    "\x1b[32m[12345.678901] \x1b[0m": (None, "12345"),
}
"""Prefix -> host, time."""
