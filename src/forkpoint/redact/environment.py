"""Which environment variables may be shown. Those not known to be harmless are left out: names of secrets are endless."""

from collections.abc import Mapping

_FRONTS = ("NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "CUDA_", "NVIDIA_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_",
    "SLURM_", "OMPI_", "PMI_", "RAY_", "FORKPOINT", "PYTHON")  # fmt: skip
_NAMES = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOSTNAME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LANG", "TZ"})  # fmt: skip
_SECRETS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "KEY", "COOKIE", "JWT", "AUTH")


def may_be_shown(variable: str) -> bool:
    name = variable.upper()
    if any(secret in name for secret in _SECRETS):
        return False
    return name in _NAMES or name.startswith(_FRONTS)


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """As they are: the values are still to be redacted."""
    return {name: environment[name] for name in sorted(environment) if may_be_shown(name)}
