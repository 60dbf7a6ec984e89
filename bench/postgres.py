"""A PostgreSQL of one's own, on a socket in a temporary folder: for benchmarks and tests of the store."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/pgsql-*/bin")


def find_postgres() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps them out of PATH."""
    found = shutil.which("pg_ctl")
    folders = [Path(found).parent] if found else []
    folders += [folder for place in _PLACES for folder in sorted(Path("/").glob(place[1:]), reverse=True)]
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


@contextmanager
def postgres() -> Generator[str]:
    """Its URL. Raises FileNotFoundError where there is none."""
    programs = find_postgres()
    if programs is None:
        raise FileNotFoundError("initdb and pg_ctl are not installed (apt-get install postgresql)")
    with TemporaryDirectory(prefix="forkpoint-pg-") as temporary:
        folder = Path(temporary)
        as_user = _as_nobody(folder) if os.geteuid() == 0 else []
        data = folder / "data"
        _run([*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "forkpoint", "--no-sync"])
        options = f"-k {folder} -c listen_addresses="
        start = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options]
        _run([*start, "start"])
        try:
            yield f"postgresql://forkpoint@/postgres?host={folder}"
        finally:
            _run([*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-m", "fast", "stop"])


def _as_nobody(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root."""
    shutil.chown(folder, "nobody")
    return ["setpriv", "--reuid=nobody", "--clear-groups"]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")
