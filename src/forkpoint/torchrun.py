"""A plug-in of torchrun: `torchrun --logs-specs forkpoint ...` keeps evidence without code changes.

Every run gets its own folder below `--log-dir` (default: forkpoint-runs), with one log per stream and rank, named by
the *global* rank (torchrun's own names only have the local one). The flight recorder is on and writes its dumps there.
"""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, Std

from forkpoint.knowledge.recorder import parse_release
from forkpoint.live.run.start import DUMP_PREFIX, recording

_FOLDER = "forkpoint-runs"


class RankLogs(DefaultLogsSpecs):
    """Keeps the user's --log-dir, --redirects and --tee; without them all output goes to files and is still shown."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        chosen = redirects != Std.NONE or tee != Std.NONE
        super().__init__(log_dir or _FOLDER, redirects, tee if chosen else Std.ALL, local_ranks_filter)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Renames torchrun's log files, and sets the recorder's variables that nobody has set."""
        dest = super().reify(envs)
        if self.root_log_dir == os.devnull:  # the user wants no files
            return dest
        ranks = {local: env.get("RANK", str(local)) for local, env in envs.items()}
        release = parse_release(torch.__version__)
        for local, env in envs.items():
            folder = Path(dest.error_files[local]).parent.parent
            env.update(recording(str(folder / DUMP_PREFIX), {**os.environ, **env}, release))
        return replace(
            dest,
            stdouts=_named(dest.stdouts, ranks),
            stderrs=_named(dest.stderrs, ranks),
            tee_stdouts=_named(dest.tee_stdouts, ranks),
            tee_stderrs=_named(dest.tee_stderrs, ranks),
        )


def _named(files: dict[int, str], ranks: dict[int, str]) -> dict[int, str]:
    """`attempt_0/1/stderr.log` -> `attempt_0/1/stderr_rank_9.log`. What is not a `.log` file stays as it is."""
    return {
        local: str(Path(file).with_name(f"{Path(file).stem}_rank_{ranks[local]}.log"))
        if file.endswith(".log")
        else file
        for local, file in files.items()
    }
