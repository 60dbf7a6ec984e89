"""Installs into the environment that runs it: `python .ci/install.py --editable '.[test]'`, as `python -m pip install` would.

uv takes a tenth of pip's CPU time, because it compiles no module that nobody imports. It does not read pip's settings (indexes,
folders of wheels, certificates), so they are translated. Where uv cannot be had, a setting has no counterpart or uv
fails, pip installs.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

PIP = (sys.executable, "-m", "pip")
UV = Path(sys.executable).with_name("uv")

COUNTERPARTS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""Settings of pip, and the variable that tells uv the same."""

CHANGES_NOTHING = {
    "break-system-packages",
    "cache-dir",
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "no-compile",
    "no-input",
    "no-python-version-warning",
    "no-warn-script-location",
    "prefer-binary",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
    "verbose",
}
"""Settings of pip that do not change what is installed."""


def main(words: list[str]) -> int:
    try:
        settings = pip_settings(subprocess.check_output([*PIP, "config", "list"], text=True))
        variables = as_uv_reads_them(settings)
        if not UV.exists():
            subprocess.run([*PIP, "install", "-qq", "uv>=0.13,<0.14"], check=True)
        # All indexes are equal to pip; uv would look no further than the first that has a package.
        command = [UV, "pip", "install", "--python", sys.executable, "--index-strategy", "unsafe-best-match", *words]
        subprocess.run(command, env=variables | os.environ, check=True)
    except (LookupError, OSError, subprocess.CalledProcessError) as error:
        print(f"pip installs, which takes minutes longer than uv: {error}", file=sys.stderr)
        return subprocess.run([*PIP, "install", *words], check=False).returncode
    return 0


def pip_settings(listed: str) -> dict[str, str]:
    """Of `pip config list`: a line is `global.find-links='/wheels'`. Later sections are stronger."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            found[section][key] = ast.literal_eval(value)
    return found["global"] | found["install"] | found[":env:"]


def as_uv_reads_them(settings: dict[str, str]) -> dict[str, str]:
    if unknown := settings.keys() - COUNTERPARTS.keys() - CHANGES_NOTHING:
        raise LookupError(f"pip's setting {', '.join(sorted(unknown))} has no counterpart")
    variables = {COUNTERPARTS[key]: " ".join(value.split()) for key, value in settings.items() if key in COUNTERPARTS}
    if "UV_FIND_LINKS" in variables:
        variables["UV_FIND_LINKS"] = variables["UV_FIND_LINKS"].replace(" ", ",")
    return variables


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
