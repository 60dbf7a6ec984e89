"""Doctor reports of nodes, redacted for a bundle."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from forkpoint.collect.bundle.environment import mask_environments
from forkpoint.errors import UsageError
from forkpoint.redact.environment import may_be_shown

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

_ENVIRONMENTS = frozenset({"environ", "environment", "env"})


def read_doctor(path: str, redact: Callable[[str], str]) -> bytes:
    """The report with every text redacted, and only those variables that may be shown. Raises UsageError."""

    def told(text: str) -> str:
        return redact(
            mask_environments(text.encode("utf-8", "surrogatepass"), Counter()).decode("utf-8", "surrogatepass")
        )

    try:
        report: Json = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"--doctor {path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--doctor {path}: is not JSON; write it with `forkpoint doctor --json`") from error
    return json.dumps(_told(report, "", told), indent=2).encode() + b"\n"


def _told(value: Json, key: str, redact: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_told(item, key, redact) for item in value]
    if isinstance(value, dict):
        kept = value if key not in _ENVIRONMENTS else {name: value[name] for name in value if may_be_shown(name)}
        return {redact(name): _told(item, name.lower(), redact) for name, item in kept.items()}
    return value
