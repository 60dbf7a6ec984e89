"""Lines as they were printed, with what they say: `samples.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from forkpoint.evidence.logs import LogKind


@dataclass(frozen=True)
class Sample:
    id: str
    used: str
    kind: LogKind | None
    pattern: str | None
    text: str

    def __str__(self) -> str:
        return self.id


def load_samples() -> list[Sample]:
    data = tomllib.loads(Path(__file__).with_name("samples.toml").read_text("utf-8"))
    return [
        Sample(
            each["id"],
            each["as"],
            LogKind(each["kind"]) if "kind" in each else None,
            each.get("pattern"),
            each["text"],
        )
        for each in data["sample"]
    ]


SAMPLES = load_samples()
