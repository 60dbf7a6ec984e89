"""The names of torch and torch.distributed in a module."""

from dataclasses import dataclass

from forkpoint.source.code import Module


@dataclass(frozen=True, slots=True)
class TorchNames:
    torch: str | None
    dist: str | None

    @property
    def imports(self) -> str:
        """Import lines for a function, of what the module does not import."""
        lines = ["import torch"] if self.torch is None else []
        lines += ["import torch.distributed as dist"] if self.dist is None else []
        return "".join(f"\n    {line}" for line in lines)

    @property
    def fields(self) -> dict[str, str]:
        return {"torch": self.torch or "torch", "dist": self.dist or "dist", "imports": self.imports}

    @property
    def dist_anywhere(self) -> str:
        """An expression that works without an import."""
        return self.dist or "__import__('torch').distributed"


def torch_names(module: Module) -> TorchNames:
    known = {dotted: name for name, dotted in module.imports.items()}
    return TorchNames(known.get("torch"), known.get("torch.distributed"))
