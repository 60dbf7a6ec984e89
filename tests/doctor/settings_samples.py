"""Recorded answers for checks of settings and jobs, each with where it is from."""

from collections.abc import Mapping

from doctor.machine_samples import with_facts
from forkpoint.doctor.system import FileFacts, Process, System, empty_machine, with_environ, with_packages

# The manual of chronyc (chrony-project.org), section `tracking`.
CHRONY = """\
Reference ID    : CB00710F (ntp1.example.net)
Stratum         : 3
Ref time (UTC)  : Fri Jan 27 09:27:29 2017
System time     : 0.000006523 seconds slow of NTP time
Last offset     : -0.000006747 seconds
RMS offset      : 0.000035822 seconds
Frequency       : 3.225 ppm slow
Residual freq   : -0.000 ppm
Skew            : 0.129 ppm
Root delay      : 0.013639022 seconds
Root dispersion : 0.001100737 seconds
Update interval : 64.2 seconds
Leap status     : Normal
"""
# omniosorg/omnios-build issue 2576, without the lines that are not read.
CHRONY_ADRIFT = """\
Reference ID    : D9723B42 (ns0.luns.net.uk)
Stratum         : 3
System time     : 7.810536861 seconds slow of NTP time
Frequency       : 31244.098 ppm slow
Leap status     : Normal
"""
# What chronyd prints before it has a source: zeros and this status (pingcap/docs pull request 5283 shows the status).
CHRONY_ALONE = """\
Reference ID    : 00000000 ()
Stratum         : 0
System time     : 0.000000000 seconds fast of NTP time
Leap status     : Not synchronised
"""
# The manual of timedatectl (systemd), example `Show current settings`.
TIMEDATECTL = """\
               Local time: Thu 2017-09-21 16:08:56 CEST
           Universal time: Thu 2017-09-21 14:08:56 UTC
                 RTC time: Thu 2017-09-21 14:08:56
                Time zone: Europe/Warsaw (CEST, +0200)
System clock synchronized: yes
              NTP service: active
          RTC in local TZ: no
"""
# nix-community/nixGL issue 186: the open module, on Ubuntu 24.04.
MODULE_565 = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build  (dvs-builder@U16-A24-9-2)  Thu Oct 10 12:15:00 UTC 2024
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
# In the form of the METADATA of a wheel of torch for Linux.
REQUIRES = (
    'nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux" and platform_machine == "x86_64"',
    'nvidia-nccl-cu12==2.27.3; platform_system == "Linux" and platform_machine == "x86_64"',
)
# Read on a Linux 6.18 machine: addresses cut to two, one listener on 29500 (hex 733C), one on 45061.
FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 10.0.0.0/24 2 0 2
           |-- 10.0.0.5
              /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
"""
LISTENING = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:B005 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1116148 1 00000000f5cb2286 100 0 0 10 0
   1: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1125997 1 0000000034ddbfbc 100 0 0 10 0
"""


def with_torch_and(version: str, environ: Mapping[str, str]) -> System:
    """A machine on which only torch's version and these variables are known, and a home that can be written."""
    home = FileFacts(4096, 1000, 0.0, is_folder=True)
    machine = with_facts(with_packages(empty_machine(), {"torch": version}), {"/home/ada": home, "/": home})
    return with_environ(machine, {"HOME": "/home/ada", **environ})


def rank(number: int, pid: int, ppid: int = 100, *, state: str = "S", **environ: str) -> Process:
    """A rank as torchrun starts it."""
    given = {"RANK": str(number), "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": "4", "MASTER_PORT": "29500", **environ}
    return Process(pid, ppid, 1000, state, 1_789_000_000.0, ("python", "train.py"), given)


def launcher(pid: int = 100, *command: str) -> Process:
    return Process(pid, 1, 1000, "S", 1_788_999_990.0, command or ("/usr/bin/python3", "/usr/bin/torchrun"), {})
