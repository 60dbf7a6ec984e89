"""Evidence of a small job in which secrets, hosts and people stand wherever they can stand."""

import gzip
import io
import json
import tarfile
from pathlib import Path

from small_jobs import SmallJob
from test_redact import HEX, PEM, SECRETS

KEYED = {
    "password": ("password={}", "hunter2-" + "Xq9Z"),
    "aws secret": ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MD" + "ENG/bPx"),
    "wandb": ("WANDB_API_KEY={}", HEX * 2 + HEX[:8]),
    "azure": ("https://x.blob.core.windows.net/c?sv=2&sig={}", "abc%2Bdefghijkl" + "mnopqrstu"),
    "in an address": ("git clone https://alice:{}@github.com/a/b", "s3cr3t-" + "Wq8"),
    "header": ("Authorization: Bearer {}", "abc.def-" + "Zq17"),
}
KEY_LINES = PEM.split("\n")[1:-1]
HOSTS = ("gpu-node-17.dc1.example.com", "10.17.3.4", "fe80::a00:27ff:fe4e:66a1")
PEOPLE = ("marvin.k", "marvin@lab.example.edu")
VARIABLE = "the-plans-of-q3"
PRIVATE = (*SECRETS.values(), *(secret for _, secret in KEYED.values()), *KEY_LINES, *HOSTS, *PEOPLE, VARIABLE)

WATCHDOG = (
    "[rank{rank}]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000) ran for 20019 milliseconds "
    "before timing out.\n"
)


def private_text(rank: int) -> str:
    lines = [f"using {secret} for rank {rank}" for secret in SECRETS.values()]
    lines += [front.format(secret) for front, secret in KEYED.values()]
    lines += [f'  File "/home/{PEOPLE[0]}/{secret}/train.py", line 9, in step' for secret in SECRETS.values()]
    lines += [f"    login({secret!r}, 'x')" for secret in SECRETS.values()]
    lines += [PEM, f"{HOSTS[0]}:4000:4000 [0] NCCL INFO from {HOSTS[1]} and [{HOSTS[2]}]:29500, ask {PEOPLE[1]}"]
    listed = [
        f"{name}={value}"
        for name, value in {"NCCL_DEBUG": "INFO", "PLANS": VARIABLE, "A": "1", "B": "2", "RANK": "0"}.items()
    ]
    shown = f"environ({{'PLANS': '{VARIABLE}', 'WORLD_SIZE': '2'}})"
    return "\n".join([*lines, *listed, shown, WATCHDOG.format(rank=rank)])


def plant(folder: Path) -> Path:
    """Rank 1 left the loop before the last all_reduce."""
    job = SmallJob(2)
    for _ in range(8):
        job.op()
    job.op([0], state="scheduled")
    secrets = list(SECRETS.values())
    for rank in range(2):
        for entry in job.entries[rank]:
            frames = [
                {"name": "step", "filename": f"/home/{PEOPLE[0]}/{secret}/train.py", "line": 9} for secret in secrets
            ]
            entry["frames"] = [*entry["frames"], *frames, {"name": secrets[0], "filename": HOSTS[0], "line": 1}]
        there = folder / f"run_{secrets[5]}"
        there.mkdir(parents=True, exist_ok=True)
        (there / f"nccl_trace_{secrets[0]}_rank_{rank}").write_bytes(job.dump(rank))
        (there / f"log_{HOSTS[0]}_rank_{rank}.txt").write_text(private_text(rank))
    (folder / "old.log.gz").write_bytes(gzip.compress(private_text(0).encode()))
    _write_tar(folder / "more.tar.gz", f"deep/{secrets[3]}/log_rank_1.txt", private_text(1).encode())
    (folder / "weights.bin").write_bytes(b"\0" + "".join(secrets).encode())
    (folder / "job.json").write_text(json.dumps({"env": private_text(0)}))
    return folder


def _write_tar(path: Path, name: str, data: bytes) -> None:
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
