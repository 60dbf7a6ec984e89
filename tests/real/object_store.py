"""Object stores with S3's interface: OpenStack Swift from Debian, which checks signatures, and moto's server from PyPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from urllib.error import URLError
from urllib.request import urlopen

from real.cluster import free_ports
from real.nodes import Node, wait_for, why_no_nodes

KEYS = {"AWS_ACCESS_KEY_ID": "team:reader", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
_KINDS = ("account", "container", "object")
_PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats s3api tempauth proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
allow_multipart_uploads = false
[filter:tempauth]
use = egg:swift#tempauth
user_team_reader = secret .admin
"""
_FILTERS = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats")
_RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in zip(("account", "container", "object"), sys.argv[1:]):
    builder = RingBuilder(2, 1, 1)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "disk", "weight": 1.0})
    builder.rebalance()
    builder.get_ring().save(f"/etc/swift/{kind}.ring.gz")
"""


@dataclass(frozen=True)
class ObjectStore:
    address: str
    node: Node | None = None

    @property
    def environ(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": self.address}

    def put(self, bucket: str, files: Mapping[str, bytes]) -> None:
        from s3fs import S3FileSystem  # noqa: PLC0415 - the tests are skipped without it

        driver = S3FileSystem(
            key=KEYS["AWS_ACCESS_KEY_ID"], secret=KEYS["AWS_SECRET_ACCESS_KEY"], endpoint_url=self.address, skip_instance_cache=True
        )  # fmt: skip
        driver.mkdir(bucket)
        for name, data in files.items():
            driver.pipe_file(f"{bucket}/{name}", data)


def why_no_driver() -> str | None:
    return None if find_spec("s3fs") else "s3fs is not installed: `make servers` does"


def why_no_swift() -> str | None:
    programs = ["memcached", "swift-proxy-server", *(f"swift-{kind}-server" for kind in _KINDS)]
    if missing := [program for program in programs if not shutil.which(program)]:
        return f"{missing[0]} is not installed, and `make servers` could not (as root: apt-get install swift-proxy ...)"
    return why_no_driver() or why_no_nodes()


def why_no_moto() -> str | None:
    return why_no_driver() or (None if find_spec("moto.server") else "moto is not installed: `make servers` does")


@contextmanager
def running_swift() -> Iterator[ObjectStore]:
    root = Path(mkdtemp(prefix="forkpoint-swift-"))
    *ports, cache = free_ports(5)
    settings = root / "etc"
    for folder in ("etc", "disk", "devices/disk"):
        (root / folder).mkdir(parents=True)
    (root / "hosts").write_text("127.0.0.1 localhost store\n")
    (root / "ssh_config").write_text("")
    policy = "[storage-policy:0]\nname = one\ndefault = yes\n"
    (settings / "swift.conf").write_text(f"[swift-hash]\nswift_hash_path_suffix = forkpoint\n{policy}")
    cached = f"[filter:cache]\nuse = egg:swift#memcache\nmemcache_servers = 127.0.0.1:{cache}\n"
    filters = cached + "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in _FILTERS)
    (settings / "proxy-server.conf").write_text(_defaults(root, ports[3]) + _PROXY + filters)
    for kind, port in zip(_KINDS, ports, strict=False):
        app = f"[pipeline:main]\npipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n"
        (settings / f"{kind}-server.conf").write_text(_defaults(root, port) + app)
    (root / "rings.py").write_text(_RINGS)
    servers = [f"swift-{kind}-server /etc/swift/{kind}-server.conf -v &" for kind in (*_KINDS, "proxy")]
    rings = f"/usr/bin/python3 {root}/rings.py {' '.join(map(str, ports[:3]))}"
    memory = f"memcached -u nobody -l 127.0.0.1 -p {cache} &"
    node = Node("store", root, [f"mount --bind {settings} /etc/swift", rings, memory, *servers])
    store = ObjectStore(f"http://127.0.0.1:{ports[3]}", node)
    try:
        node.start()
        wait_for(lambda: _answers(f"{store.address}/healthcheck"), "Swift answers")
        yield store
    finally:
        if node._process is not None:
            node.crash()
        shutil.rmtree(root, ignore_errors=True)


def _defaults(root: Path, port: int) -> str:
    return (
        f"[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {port}\nworkers = 0\nuser = root\n"
        f"devices = {root}/devices\nmount_check = false\n"
    )


@contextmanager
def running_moto() -> Iterator[ObjectStore]:
    store = ObjectStore(f"http://127.0.0.1:{free_ports(1)[0]}")
    port = store.address.rpartition(":")[2]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", port], env=os.environ, **quiet)
    try:
        wait_for(lambda: _answers(store.address), "moto answers")
        yield store
    finally:
        server.kill()
        server.wait()


def _answers(address: str) -> bool:
    try:
        with urlopen(address):
            return True
    except URLError as error:
        return not isinstance(error.reason, OSError)
