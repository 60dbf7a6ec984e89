"""Processes that the kernel killed for memory in the last day, on the whole node."""

from forkpoint.doctor.check import Check
from forkpoint.doctor.kernel_log import judge_presence, look_at_kernel, say
from forkpoint.ingest.machine.kernel_event import KernelKind

CHECK = Check(
    name="oom-kills",
    title="nothing was killed for memory",
    why="A rank or loader worker that is killed writes no dump and no last word; its peers hang.",
    look=look_at_kernel(
        {KernelKind.OOM_KILL},
        judge_presence(
            "compare its pid with the job's; give the job more memory, or fewer loader workers and smaller prefetch"
        ),
    ),
    inject=say("Out of memory: Killed process 31631 (python3) total-vm:123456kB, anon-rss:98765kB"),
)
