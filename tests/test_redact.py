"""What must not leave the machine does not, and what tells the story stays."""

import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import CASES
from forkpoint.evidence import read
from forkpoint.knowledge.variables import may_be_shown, shown
from forkpoint.model.capture import Capture, Problem, Remark
from forkpoint.model.entries import Tables
from forkpoint.model.log import LogEvent, LogKind, Speaker
from forkpoint.model.world import RankPlace
from forkpoint.redact import Redactor
from forkpoint.redact.environments import mask_environments
from looping import for_each
from small_jobs import SmallJob

NOTHING = Capture((), Tables({}, {}, {}))


def made(front: str, length: int, alphabet: str = "aB3dE5gH7jK9mN1p") -> str:
    """Shaped like a secret, and written nowhere as one: scanners read this file too."""
    return front + (alphabet * (length // len(alphabet) + 1))[:length]


HEX = "3f9a0b7c2d1e4856"
BODY = "\n".join([made("", 64, "MIIEvQ3a+/Zk9dE5")] * 3)
PEM = "-----BEGIN RSA PRIVATE " + f"KEY-----\n{BODY}\nq8Zt==\n-----END RSA PRIVATE " + "KEY-----"

SECRETS = {
    "aws": made("AK" + "IA", 16, "Q2Z7X9K4"),
    "aws, for a while": made("AS" + "IA", 16, "Q2Z7X9K4"),
    "google": made("AI" + "za", 35),
    "google, for a while": made("ya" + "29.", 60),
    "google client": made("GOC" + "SPX-", 28),
    "hugging face": made("h" + "f_", 34),
    "openai": made("s" + "k-proj-", 48),
    "anthropic": made("s" + "k-ant-api03-", 80),
    "nvidia": made("nv" + "api-", 60),
    "github": made("gh" + "p_", 36),
    "github, by an app": made("gh" + "s_", 36),
    "github, fine-grained": made("github" + "_pat_", 60),
    "gitlab": made("gl" + "pat-", 20),
    "slack": made("xo" + "xb-", 40, "12345678-"),
    "wandb": made("wandb" + "_v1_", 60),
    "jwt": f"ey{made('J', 30)}.{made('', 40)}.{made('', 43)}",
    "jwt, without a signature": f"ey{made('J', 30)}.{made('', 40)}.",
}


@for_each("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_inside_a_folders_name_is_masked(secret: str) -> None:
    assert secret not in Redactor().redact(f"/checkpoints/ckpt_{secret}_x/last.pt")


@for_each("secret", SECRETS.values(), ids=SECRETS.keys())
@for_each("line", ["{}", "key {}, then", 'x="{}"', "({})", "a={}&b=1", "/{}/"])
def test_a_secret_known_by_its_shape_is_masked_and_its_neighbours_stay(secret: str, line: str) -> None:
    before, after = line.split("{}")

    said = Redactor().redact(line.format(secret))

    assert re.fullmatch(re.escape(before) + r"\[masked-[a-z-]+\]\.?" + re.escape(after), said)


@for_each(
    ("text", "kept"),
    [
        ("password=hunter2 rank 3", "password=[masked-value] rank 3"),
        ("PGPASSWORD=hunter2", "PGPASSWORD=[masked-value]"),
        ('{"password": "a b c", "rank": 3}', '{"password": "[masked-value]", "rank": 3}'),
        ("'api_key': 'd41d8cd98f00b204'", "'api_key': '[masked-value]'"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPx", "AWS_SECRET_ACCESS_KEY=[masked-value]"),
        ("DefaultEndpointsProtocol=https;AccountKey=Eby8vdM02xNOcqFl==;x=1", "DefaultEndpointsProtocol=https;AccountKey=[masked-value];x=1"),
        (f"WANDB_API_KEY={HEX * 2}{HEX[:8]}", "WANDB_API_KEY=[masked-value]"),
        (f"wandb login {HEX * 2}{HEX[:8]}", "wandb login [masked-wandb-key]"),
        ("HF_TOKEN: abcd1234efgh", "HF_TOKEN: [masked-value]"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [masked-authorization]"),
        ('"authorization": "Basic dXNlcjpwYXNz"', '"authorization": "Basic [masked-authorization]"'),
        ("python train.py --wandb-token 1234abcd5678 --lr 3", "python train.py --wandb-token [masked-value] --lr 3"),
        ("password=$ecret!,x", "password=[masked-value]"),
        ("passwd: (odd[one]", "passwd: [masked-value]"),
        ("machine api.wandb.ai login user password 3f9a0b7c2d1e48563f9a", "machine api.wandb.ai login user password [masked-value]"),
        ("SharedAccessKey=abc123def456;x", "SharedAccessKey=[masked-value];x"),
        ("train.py --password x", "train.py --password [masked-value]"),
        ("git clone https://alice:s3cret@github.com/a/b", "git clone https://[masked-credentials]@github.com/a/b"),
        ("https://oauth2@github.com/a/b", "https://[masked-credentials]@github.com/a/b"),
        ("https://x.blob.core.windows.net/c?sv=2&sig=abc%2Bdefghijklmnopqrstu", "https://host-1/c?sv=2&sig=[masked-azure-signature]"),
    ],
)  # fmt: skip
def test_a_value_that_a_name_gives_away_is_masked_and_the_name_is_kept(text: str, kept: str) -> None:
    assert Redactor().redact(text) == kept


def test_a_private_key_is_masked_whole_cut_escaped_and_line_by_line() -> None:
    escaped = PEM.replace("\n", "\\n")

    assert Redactor().redact(f"before\n{PEM}\nafter") == "before\n[masked-private-key]\nafter"
    assert Redactor().redact(f'"key": "{escaped}"') == '"key": "[masked-private-key]"'
    assert BODY[:40] not in Redactor().redact(PEM[:120])
    assert not [line for line in PEM.split("\n")[1:-2] if line in Redactor().redact(line)]


@for_each(
    ("text", "kept"),
    [
        ("Bootstrap : Using eth0:10.1.2.3<0>", "Bootstrap : Using eth0:ip-1<0>"),
        ("10.1.2.3:29500 to 10.1.2.4, 10.1.2.3.", "ip-1:29500 to ip-2, ip-1."),
        ("10.1.2.3-10.1.2.9", "ip-1-ip-2"),
        ("driver 10.1.2.3 is gone", "driver ip-1 is gone"),
        ("[::ffff:10.1.2.3]:29500", "[::ffff:ip-1]:29500"),
        ("[fe80::a00:27ff:fe4e:66a1%eth0]:2", "[ip-1%eth0]:2"),
        ("from 2001:db8:0:0:0:0:0:1 and 2001:db8::1", "from ip-1 and ip-1"),
        ("eth0 08:00:27:4e:66:a1 up", "eth0 mac-1 up"),
        ("node_guid: b8ce:f603:0012:3456", "node_guid: guid-1"),
        ("Port GUID: 0xb8cef60300123456", "Port GUID: guid-1"),
    ],
)
def test_an_address_becomes_the_same_pseudonym_each_time(text: str, kept: str) -> None:
    assert Redactor().redact(text) == kept


@for_each(
    ("text", "kept"),
    [
        ("/home/alice/run/train.py:48", "/home/user-1/run/train.py:48"),
        ("/mnt/nfs/home/alice", "/mnt/nfs/home/user-1"),
        ("/Users/bob.k/train.py", "/Users/user-1/train.py"),
        ("/users/carol/x.py", "/users/user-1/x.py"),
        ("USER=alice HOME=/home/alice", "USER=user-1 HOME=/home/user-1"),
        ("uid=1000(alice) gid=1000(alice)", "uid=1000(user-1) gid=1000(user-1)"),
        ("mail alice@lab.example.edu about rank 3", "mail user-1@host-1 about rank 3"),
        ("Co-Authored-By: <alice@gmail.net>", "Co-Authored-By: <mail-1>"),
        ("ssh alice@gpu-1.dc.example.com", "ssh user-1@host-1"),
    ],
)
def test_a_person_becomes_a_pseudonym_and_the_rest_of_the_path_stays(text: str, kept: str) -> None:
    assert Redactor().redact(text) == kept


@for_each(
    ("text", "kept"),
    [
        ("gpu01.dc1.example.com:4000:4000 [0] NCCL INFO", "host-1:4000:4000 [0] NCCL INFO"),
        ("worker-3.train.svc.cluster.local is gone.", "host-1 is gone."),
        ("ip-10-1-2-3.ec2.internal", "host-1"),
        ("ip-10-1-2-3 said", "host-1 said"),
        ("gpu-01.site.example.net", "host-1"),
        ("init_method tcp://node17:29500", "init_method tcp://host-1:29500"),
        ("MASTER_ADDR=node17 MASTER_PORT=29500", "MASTER_ADDR=host-1 MASTER_PORT=29500"),
        ("The client socket has connected to [node17]:53621 on SocketImpl(fd=13, addr=[node17]:38244, remote=[node18]:5)",
         "The client socket has connected to [host-1]:53621 on SocketImpl(fd=13, addr=[host-1]:38244, remote=[host-2]:5)"),
        ("rdzv_endpoint='node-1.dc:29400'", "rdzv_endpoint='host-1:29400'"),
        ("https://dgx-7.nvidia.com/x", "https://host-1/x"),
        ("NCCL_HOSTID set by environment to node0", "NCCL_HOSTID set by environment to host-1"),
        ("SLURM_SUBMIT_HOST=login1, HOSTNAME=gpu7", "SLURM_SUBMIT_HOST=host-1, HOSTNAME=host-2"),
        ("SLURM_JOB_NODELIST=gpu[001-004,007] x", "SLURM_JOB_NODELIST=host-1 x"),
    ],
)  # fmt: skip
def test_a_name_that_looks_or_stands_like_a_host_becomes_a_pseudonym(text: str, kept: str) -> None:
    assert Redactor().redact(text) == kept


STORY = [
    "[rank0]:[E1115 01:18:27.123456789 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout:",
    "WorkNCCL(SeqNum=16, OpType=ALLREDUCE, NumelIn=71178, NumelOut=71178, Timeout(ms)=600000) ran for 600091 ms",
    "[PG ID 0 PG GUID 0(default_pg) Rank 0] last enqueued work: 16",
    "NCCL version 2.28.9+cuda12.9, torch 2.13.0, cuDNN 9.10.2.21, driver 550.54.15, CUDA 12.9.1.4",
    "cudnn version: 9.10.2.21", "nvidia-cudnn-cu12==9.10.2.21", "libcudnn.so.9.10.2.21",
    "2026-11-15 01:18:27,123 at 01:18:27", "Nov 15 01:18:27", "took 1.84098 ms",
    "commit 3f9a0b7c2d1e48563f9a0b7c2d1e48563f9a0b7c", "sha256:" + HEX * 4,
    "GPU-5f1c2a3b-aaaa-bbbb-cccc-1234567890ab", "c10d::ProcessGroup, c10d::AddressFamily and std::abs::",
    "busId 1b000 0000:1b:00.0 commId 0xc0c3bdb52e03e3d6 comm 0x48ee0840", "NVRM: Xid (PCI:0000:1b:00): 79, pid=4001",
    "127.0.0.1:29500 and [::1]:29500 and 0.0.0.0", "Using lo:127.0.0.1<0>", "netmask 255.255.255.0",
    "[localhost]:53621", "tcp://localhost:29500", "[default0]:2026-11-15 starts", "[3,4]<stderr>:x",
    "train.py:48 in Trainer.fit", "/opt/conda/lib/python3.12/site-packages/torch/distributed/c10d_logger.py",
    "src/users/views.py and app/home/page.py", "/" + "root/run/train.py", "/home/train.py",
    "torch.distributed.all_reduce(x)", "threading.local()", "google.protobuf.internal", "self.net(x)", "torchvision.io",
    "model.layers.0.self_attn.q_proj.weight", "size mismatch: (4096, 8) vs [4096, 9]", "1.2.3", "256.1.1.1", "v1.2.3.4",
    "eos_token: 2, pad_token='<pad>', bos_token=<s>, num_tokens: 12345678, max_tokens=100000000",
    "def f(token: str, password: str | None = None)", "tokens=40960000", "KeyError: 'rank'", 'token = os.environ["X"]',
    "unexpected token: identifier", "secret_santa(3)", "tokenizer=meta-llama/Llama-3.1-8B", "user=0.12s sys=1.0s",
    "https://pytorch.org/docs/stable/distributed.html", "see https://github.com/pytorch/pytorch/issues/12345",
    "sk-learn and sk-1", "hf_hub_download", "gh issue", "risk-free-and-all-that-jazz-2026", "disk-usage-of-the-node",
    "all_reduce -> reduce_scatter_tensor_coalesced", "step 100 loss 2.345e-01 lr 1.0e-04", "a @ b", "x@property",
    "def connect(master_addr: str, endpoint: str | None)", "local_addr=args.local_addr", "to connect to the same store",
    "token = self._match.get(signature)", "token = path_splits[0]", "def knows(authorization: str) -> bool",
    "token=self.a_very_long_attribute_name", "`P1@train.py:15`", "file.zip@member.pkl", "https://docs.nvidia.com/nccl",
    "password: str", "password=$WANDB_PASSWORD", "token=${TOKEN_2026_A}", "reset your password today", "MASTER_ADDR=localhost",
    "fe80", "2001:", "12:34:56:78", "aa:bb", "rank 3 of 8 on GPU 2", "AKIA", "eyJ", "-----BEGIN CERTIFICATE-----",
]  # fmt: skip


@for_each("text", STORY)
def test_what_tells_the_story_stays(text: str) -> None:
    assert Redactor().redact(text) == text


def spoken(host: str | None, text: str, line: int = 1) -> LogEvent:
    return LogEvent(LogKind.NETWORK, "log_rank_0.txt", line, 0, text, speaker=Speaker(host=host))


CLUSTER = replace(
    SmallJob(2).capture(),
    places=tuple(RankPlace(r, f"gpu{r + 1}", 0, "1b000", "log_rank_0.txt", 1) for r in range(12)),
    events=(
        spoken("login", "peer 10.0.0.9 of /home/zoe/x.py is gone"),
        spoken(None, "peer 10.0.0.10 of /home/adam/x.py is gone"),
    ),
    remarks=(Remark("kern.log", 1, "storage", None, "storage is slow"),),
    problems=(Problem("x", "cannot read 10.0.0.11"),),
)  # fmt: skip


def test_hosts_of_the_capture_are_numbered_as_a_person_would_count_them() -> None:
    redactor = Redactor.of(CLUSTER)

    assert redactor.redact("gpu1 gpu2 gpu10 gpu12 login storage") == "host-1 host-2 host-10 host-12 host-13 host-14"
    assert redactor.redact("gpu2.dc.example.com:4 (gpu2)") == "host-2:4 (host-2)"
    assert redactor.map["host-2"] == "gpu2"


@for_each("text", ["gpu13", "gpu1x", "my-gpu1", "gpu1.py", "log_gpu1.txt", "gpu", "logins", "pre.storage"])
def test_what_only_resembles_a_host_of_the_capture_stays(text: str) -> None:
    assert Redactor.of(CLUSTER).redact(text) == text


def test_a_user_of_the_capture_is_taken_out_of_other_paths() -> None:
    redactor = Redactor.of(CLUSTER)

    assert redactor.redact("/scratch/zoe/data and zoe.py") == "/scratch/user-2/data and zoe.py"
    assert redactor.redact("/scratch/eve/data") == "/scratch/eve/data"
    assert Redactor(users=["user"]).redact("/src/user/views.py") == "/src/user/views.py"


@for_each("word", ["all_reduce", "default_pg", "rank0", "localhost", "3", "None", "mesh_dp", ""])
def test_a_log_that_calls_something_else_a_host_does_not_hide_it(word: str) -> None:
    job = SmallJob(2, groups={"7": ("mesh_dp", (0, 1))})
    job.op(group="7")
    job.op()
    capture = replace(job.capture(), events=(spoken(word, "x"),))
    text = "rank0 of default_pg and mesh_dp waits in all_reduce seq 3, None on localhost"

    assert Redactor.of(capture).redact(text) == text


@for_each("seed", range(5))
def test_the_order_of_files_does_not_change_a_pseudonym(seed: int) -> None:
    random = Random(seed)
    parts = {name: random.sample(getattr(CLUSTER, name), len(getattr(CLUSTER, name))) for name in ("places", "events")}

    shuffled = Redactor.of(replace(CLUSTER, places=tuple(parts["places"]), events=tuple(parts["events"])))

    assert shuffled.map == Redactor.of(CLUSTER).map
    assert len(shuffled.map) == 12 + 2 + 3 + 2


def test_hosts_with_nothing_in_common_are_all_found() -> None:
    hosts = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}{n}x" for n in range(100)]

    said = Redactor(hosts=[*hosts, "7z"]).redact(" ".join([*hosts, "7z", "zz9"]))

    assert said.split()[-2:] == ["host-101", "zz9"]
    assert not set(hosts) & set(said.split())


def test_replacements_are_counted_by_what_was_replaced() -> None:
    redactor = Redactor.of(CLUSTER)
    assert redactor.counts == ()

    redactor.redact("gpu1 and gpu2 at 10.0.0.9, password=x")

    assert redactor.counts == (("host", 2), ("ip", 1), ("value", 1))


def test_a_name_that_looks_like_a_pseudonym_belongs_to_nobody_else() -> None:
    capture = replace(
        NOTHING, events=(spoken("host-1", "a"), spoken("alpha", "b"), spoken("host-3", "c"), spoken("beta", "d"))
    )

    said = Redactor.of(capture).redact("host-1 alpha host-3 beta")

    assert len(set(said.split())) == 4


ALL = [*SECRETS.values(), PEM, *STORY, "gpu1", "gpu2.dc.example.com", "10.1.2.3", "/home/zoe/x", "/scratch/zoe/x", "a@b.com",
       "password=hunter2", "Authorization: Bearer abc.def", "https://a:b@gpu1/x", "USER=zoe", "user-1@host-1", "fe80::1:2"]  # fmt: skip


@for_each("text", ALL)
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    once = Redactor.of(CLUSTER).redact(text)

    assert Redactor.of(CLUSTER).redact(once) == once


@given(
    st.lists(st.sampled_from(ALL) | st.text(max_size=12), max_size=8),
    st.sampled_from([" ", "\n", "", ":", "=", "/", "@"]),
)
def test_done_twice_is_as_done_once(parts: list[str], between: str) -> None:
    redactor = Redactor.of(CLUSTER)
    once = redactor.redact(between.join(parts))

    assert redactor.redact(once) == once
    assert Redactor.of(CLUSTER).redact(once) == once


@given(st.lists(st.sampled_from(list(SECRETS.values())), min_size=1, max_size=5), st.integers(0, 70_000))
def test_a_long_text_is_redacted_like_a_short_one(secrets: list[str], filler: int) -> None:
    text = "\n".join("x" * filler + f" {secret} 10.1.2.3" for secret in secrets)

    said = Redactor().redact(text)

    assert not [secret for secret in secrets if secret in said]
    assert said.count("ip-1") == len(secrets)


@pytest.mark.parametrize("case", [CASES / "0001", CASES / "0064"], ids=lambda path: path.name)
def test_a_recorded_case_keeps_its_story(case) -> None:
    capture = read([str(case / "capture")])
    redactor = Redactor.of(capture)
    lines = {line for log in (case / "capture").glob("log_*") for line in log.read_text().splitlines()}

    changed = {
        line
        for line in lines
        if re.sub(r"host-\d+|user-\d+", "", redactor.redact(line)) != re.sub(r"\bvm\b|\bnode\d\b", "", line)
    }

    assert {what for what, _ in redactor.counts} <= {"host", "user"}
    assert not changed


@for_each("name", ["NCCL_DEBUG", "TORCH_NCCL_TRACE_BUFFER_SIZE", "RANK", "SLURM_JOB_NODELIST", "MASTER_ADDR"])
def test_a_variable_that_bears_on_a_hang_is_shown(name: str) -> None:
    assert may_be_shown(name)


@for_each(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_SETTING", "NCCL_SECRET", "SLURM_JWT", "RAY_AUTH_TOKEN", "RANKING"]
)
def test_a_variable_that_nobody_knows_to_be_harmless_is_left_out(name: str) -> None:
    assert shown({name: "x", "RANK": "3"}) == {"RANK": "3"}


PLACES = {
    "a line of srun": "srun: error: @@: task 3: Exited with exit code 1",
    "a line of slurmstepd": "slurmstepd: error: *** STEP 1234.0 ON @@ CANCELLED AT 2026-01-02T03:04:05 ***",
    "a line of ssh": "ssh: connect to host @@ port 22: Connection refused",
    "JSON": '{"hostname": "@@", "rank": 3}',
    "a variable of Slurm": "SLURMD_NODENAME=@@",
    "a sentence": "Host @@ is down: no heartbeat for 30 s",
    "a prefix": "[@@:0]:2026-01-02 03:04:05 INFO step 10",
}


@for_each("place", PLACES)
def test_a_host_gets_a_pseudonym_where_a_line_names_one(place: str) -> None:
    assert Redactor().redact(PLACES[place].replace("@@", "trnxa-8968")) == PLACES[place].replace("@@", "host-1")


@for_each(
    ("line", "after"),
    [
        ("plindqvist@login01:~$ sbatch run.sh", "user-1@login01:~$ sbatch run.sh"),
        ('{"user": "oferreira", "job": 1}', '{"user": "user-1", "job": 1}'),
        ("session opened for user hbergstrom by (uid=0)", "session opened for user user-1 by (uid=0)"),
        (r"C:\Users\rkapoor\train.py", r"C:\Users\user-1\train.py"),
        ("HWaddr df-47-7e-c6-e1-78", "HWaddr mac-1"),
        ("Gi1/0/3 learned 3cec.ef5a.bbc2", "Gi1/0/3 learned mac-1"),
        ("ib0:77ca:a11f:9991:15e5:2c04:fac0:732e:2f5c%ib0<0>", "ib0:ip-1%ib0<0>"),
        ("gw-7.prod.acmelabs.net_rank3.log", "host-1_rank3.log"),
        ("set password to 'winter5027W'", "set password to '[masked-value]'"),
        ("encryption_key=willow%%#Marble072", "encryption_key=[masked-value]"),
    ],
)
def test_what_identifies_or_opens_is_replaced_in_these_forms_too(line: str, after: str) -> None:
    assert Redactor().redact(line) == after


@for_each(
    "line",
    [
        "Host memory is 3 GB; the host is not here",
        "[rank0]: [default0:0]: [1:0]: x",
        "hook = model.com_hook(self.net_io)",
        "run-26-01-02-03-04-05 begins",
        "waits for user input; signing_key = None",
        "srun: job 1234 queued and waiting for resources",
        '"node": "worker"',
    ],
)
def test_a_line_that_only_looks_so_stays(line: str) -> None:
    assert Redactor().redact(line) == line


def test_three_exported_variables_are_a_listing_and_one_is_not() -> None:
    text = b'declare -x PATH="/bin"\ndeclare -x HOME="/root"\ndeclare -x CORP_ID="of7Kq"\n'

    assert b"of7Kq" not in mask_environments(text, Counter())
    assert mask_environments(b"export CORP_ID=of7Kq\n", Counter()) == b"export CORP_ID=of7Kq\n"
