"""A machine with something else in place of what it has: for `--inject`, and for recorded machines."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from forkpoint.doctor.system import COMMAND_LIMIT_S, Disk, Package, Process, Ran, System, Unanswered


def with_environ(system: System, changes: Mapping[str, str], without: Sequence[str] = ()) -> System:
    kept = {name: value for name, value in system.environ.items() if name not in without}
    return replace(system, environ={**kept, **changes})


def with_files(
    system: System, texts: Mapping[str, str | None], later: Mapping[str, str | None] | None = None
) -> System:
    """Files and the folders they are in; None takes a file away. `later` is what they say after the first pause."""
    paused: list[float] = []

    def read(path: str) -> str | None:
        if paused and later is not None and path in later:
            return later[path]
        return texts[path] if path in texts else system.read(path)

    def names(path: str) -> tuple[str, ...]:
        below = {name for file in texts if (name := _first_name(path, file))}
        gone = {
            posixpath.basename(file) for file, text in texts.items() if text is None and posixpath.dirname(file) == path
        }
        return tuple(sorted({*system.names(path), *below} - gone))

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if later is None:
            system.pause(seconds)

    return replace(system, read=read, names=names, pause=pause)


def _first_name(folder: str, file: str) -> str:
    """The entry of a folder on the way to a file; empty where the file is elsewhere."""
    start = folder.rstrip("/") + "/"
    return file[len(start) :].split("/", 1)[0] if file.startswith(start) else ""


def with_disk(system: System, path: str, disk: Disk) -> System:
    """For this path and all below it."""

    def ask(asked: str) -> Disk | Unanswered:
        return disk if asked == path or _first_name(path, asked) else system.disk(asked)

    return replace(system, disk=ask)


def with_outputs(system: System, outputs: Mapping[str, Ran | Unanswered]) -> System:
    """Answers of programs, by the start of their command line: `chronyc` or `chronyc tracking`; the longest counts."""

    def run(argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Ran | Unanswered:
        line = f"{' '.join(argv)} "
        known = [start for start in outputs if line.startswith(f"{start} ")]
        return outputs[max(known, key=len)] if known else system.run(argv, timeout_s)

    return replace(system, run=run)


def with_processes(system: System, processes: Sequence[Process]) -> System:
    return replace(system, processes=lambda: tuple(processes))


def with_packages(system: System, versions: Mapping[str, str | None], requires: tuple[str, ...] = ()) -> System:
    def package(name: str) -> Package | None:
        if name not in versions:
            return system.package(name)
        version = versions[name]
        return None if version is None else Package(version, requires)

    return replace(system, package=package)


def empty_machine(now: float = 1_790_000_000.0) -> System:
    """A machine on which nothing can be found out: every check is skipped or bad here, none ok."""
    return System(
        host="node-0",
        environ={},
        job=None,
        now=lambda: now,
        pause=lambda _seconds: None,
        read=lambda _path: None,
        names=lambda _path: (),
        link=lambda _path: None,
        stat=lambda _path: None,
        disk=lambda path: Unanswered(f"{path}: no such file system"),
        may_write=lambda _path: False,
        run=_not_installed,
        processes=lambda: (),
        package=lambda _name: None,
        clock=lambda: Unanswered("adjtimex is not there"),
        nvml=lambda: Unanswered("nvidia-ml-py is not installed"),
    )


def _not_installed(argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Unanswered:  # noqa: ARG001 - as Run asks
    return Unanswered(f"{argv[0]} is not installed")
