"""Machines made of what was recorded: files, outputs of programs, and what NVML told."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forkpoint.doctor.nvml import Gpu, Nvml, parse_nvml
from forkpoint.doctor.system import FileFacts, Ran, System, Unanswered, empty_machine, with_files, with_outputs

RECORDED = Path(__file__).parent / "recorded"
UPTIME = "37046.54 27561.14\n"


def text_of(name: str) -> str:
    return (RECORDED / name).read_text()


def files_of(name: str) -> dict[str, str]:
    return json.loads(text_of(name))


def machine(
    *names: str, texts: Mapping[str, str | None] | None = None, later: Mapping[str, str] | None = None
) -> System:
    """The files of these recordings, with some changed, and some changed again by the time of the second read."""
    files: dict[str, str | None] = {path: text for name in names for path, text in files_of(name).items()}
    return with_files(empty_machine(), {**files, **(texts or {})}, later)


def with_kernel_log(system: System, *lines: str, seconds_ago: float = 60) -> System:
    """Lines as dmesg prints them, after what a sound machine said."""
    uptime = float(UPTIME.split(maxsplit=1)[0])
    said = "".join(f"[{uptime - seconds_ago:12.6f}] {line}\n" for line in lines)
    told = with_outputs(system, {"dmesg": Ran(0, text_of("dmesg_vm.txt") + said)})
    return with_files(told, {"/proc/uptime": UPTIME})


def with_gpus(system: System, *changes: Mapping[str, Any]) -> System:
    """The recorded pair of GPUs; each change replaces fields of one of them."""
    told = parse_nvml(json.loads(text_of("nvml_h100_pair.json")))
    assert isinstance(told, Nvml)
    gpus = tuple(
        replace(gpu, **change) for gpu, change in zip(told.gpus, (*changes, *({} for _ in told.gpus)), strict=False)
    )
    return replace(system, nvml=lambda: replace(told, gpus=gpus))


def gpu_of(system: System, index: int = 0) -> Gpu:
    told = system.nvml()
    assert isinstance(told, Nvml)
    return told.gpus[index]


def without_nvml(system: System, answer: Unanswered) -> System:
    return replace(system, nvml=lambda: answer)


def with_links(system: System, links: Mapping[str, str]) -> System:
    def link(path: str) -> str | None:
        return links.get(path) or system.link(path)

    return replace(system, link=link)


def with_facts(system: System, facts: Mapping[str, FileFacts | None]) -> System:
    def stat(path: str) -> FileFacts | None:
        return facts[path] if path in facts else system.stat(path)

    return replace(system, stat=stat)
