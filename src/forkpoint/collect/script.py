"""The only command that runs on other machines: a fixed script that finds files and packs them.

Nothing that a user or a cluster says becomes part of it. The path to look at is a line on its standard input; an empty
line means torch's usual places. It reads, and changes nothing.
"""

_NAMES = (
    "*rank*", "*trace*", "*.log", "*.out", "*.err", "*.txt", "stdout*", "stderr*", "error.json", "*.log.gz", "*.txt.gz",
    "*.out.gz", "*.err.gz", "*.log.zst", "*.txt.zst",
)  # fmt: skip
"""Evidence by name. Files whose content is something else are dropped on arrival."""
_LARGE = 131072
"""In blocks of 512 bytes: 64 MiB, more than a dump has."""

_ANY = " -o ".join(f"-name '{name}'" for name in _NAMES)
_USUAL = (
    '"$HOME/.cache/torch/"*trace_rank_* "${XDG_CACHE_HOME:-/nonexistent}/torch/"*trace_rank_* /tmp/nccl_trace_rank_* '
    '"${TORCH_FR_DUMP_TEMP_FILE:-/nonexistent}"* "${TORCH_NCCL_DEBUG_INFO_TEMP_FILE:-/nonexistent}"* '
    '"${FORKPOINT_DIR:-/nonexistent}"'
)
_FIND = f'find "$@" -type f ! -path "*$newline*" \\( {_ANY} \\)'
SCRIPT = (
    "IFS= read -r place; "
    "newline=$(printf '\\nx'); newline=${newline%x}; "  # a name with one in it would be two names for tar
    "case $place in "
    f"'') set -- {_USUAL} ;; "
    '"~/"*) set -- "$HOME/${place#??}" ;; '
    '*) set -- "$place" ;; '
    "esac; "
    # Small files first: dumps are small, and one huge log must not crowd them out.
    f"{{ {_FIND} -size -{_LARGE} 2>/dev/null; {_FIND} -size +{_LARGE - 1} 2>/dev/null; }} "
    "| tar -cf - -T - 2>/dev/null"
)
"""POSIX sh, on one line. Every name begins with a slash, so that tar takes none for an option."""
