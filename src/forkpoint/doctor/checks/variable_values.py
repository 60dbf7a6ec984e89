"""Do variables have values that torch accepts?

A word that is no yes or no makes torch raise `Invalid value for environment variable` when the process group is made;
NCCL takes no notice of a word it does not know.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.system import System
from forkpoint.launch_env.values import has_known_values, wrong_value


def look(system: System) -> CheckResult:
    known = {name: value for name, value in sorted(system.environ.items()) if has_known_values(name)}
    if not known:
        return skipped("none of torch's or NCCL's switches is set")
    wrong = {name: why for name, value in known.items() if (why := wrong_value(name, value))}
    if not wrong:
        return ok(f"{len(known)} are set, all to values that are understood")
    says = "; ".join(f"{name}={known[name]!r} is {why}" for name, why in wrong.items())
    return bad(says, f"correct or unset {' '.join(wrong)}")


def inject(system: System) -> System:
    return with_environ(system, {"TORCH_NCCL_DUMP_ON_TIMEOUT": "enabled"})


CHECK = Check(
    name="variable-values",
    title="values that are understood",
    why="A wrong word stops the job when its group is made, or is passed over in silence.",
    look=look,
    inject=inject,
)
