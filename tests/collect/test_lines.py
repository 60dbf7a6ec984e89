"""The quick way through a log gives what the slow way gives, byte for byte."""

from collections import Counter
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from collect.planted import KEYED, private_text
from forkpoint.redact import Redactor
from forkpoint.redact.environments import mask_environments
from forkpoint.redact.logs import Lines, pieces
from looping import for_each
from test_redact import PEM, SECRETS, STORY

HOSTS = ("node7", "gpu-12", "dgx")
FORMS = [
    *STORY,
    *SECRETS.values(),
    *(front.format(secret) for front, secret in KEYED.values()),
    "10.{}.3.4:29500", "cuDNN {}.9.1.4", "{}:db8::1", "fe80::{}", "node{} said", "gpu-{}", "/home/ann{}/x", "uid={}(ann)",
    "token=abcdefg{}", "GUID: 0x{}b8cef60300123", "aa:bb:cc:dd:ee:{}", "ip-{}-1-2-3", "ya{}." + "a" * 30, "wandb_v{}_" + "a" * 30,
    "bob@host-{}", "/a/ann2/{}", "hf_{}" + "a" * 20, "step {} loss 0.{}", "rank {} of 8",
]  # fmt: skip


def redactor() -> Redactor:
    made = Redactor(HOSTS, ("ann2",))
    made.redact(" ".join(HOSTS))
    return made


@given(st.lists(st.tuples(st.sampled_from(FORMS), st.integers(0, 3000)), max_size=30), st.integers(1, 5))
def test_any_order_of_lines_is_redacted_as_one_text(chosen: list[tuple[str, int]], cut: int) -> None:
    texts = ["\n".join(form.replace("{}", str(number)) for form, number in chosen[i::cut]) + "\n" for i in range(cut)]
    quick, slow = Lines(redactor()), redactor()

    assert [quick.redact(text.encode()) for text in texts] == [slow.redact(text).encode() for text in texts]


def test_lines_of_a_clean_kind_are_passed_on_and_the_same_kind_with_a_known_host_is_not() -> None:
    lines = Lines(redactor())

    assert lines.redact(b"step 1 node8\nstep 2 node9\n") == b"step 1 node8\nstep 2 node9\n"
    assert lines.redact(b"step 3 node7\n") == redactor().redact("step 3 node7\n").encode() != b"step 3 node7\n"
    assert lines.redact(b"cuDNN 9.10.2.21\n") == b"cuDNN 9.10.2.21\n"
    assert lines.redact(b"cuDNN 10.10.2.21\n") == b"cuDNN ip-1\n"


def test_what_is_no_text_stays_as_it_is() -> None:
    data = b"\xff\xfe step \xc3\xa9 /home/ann2/\x80\n"

    assert Lines(redactor()).redact(data) == data.replace(b"ann2", b"user-1")


@given(st.integers(64, 4000))
def test_pieces_are_the_whole_and_nothing_is_cut_in_two(size: int) -> None:
    text = (private_text(0) + "\n").encode() * 3
    quick = Lines(redactor())

    parts = list(pieces(BytesIO(text), size))

    assert b"".join(parts) == text or b"[masked-endless-line]" in b"".join(parts)
    redacted = b"".join(quick.redact(part) for part in parts)
    assert [secret for secret in SECRETS.values() if secret.encode() in redacted] == []


def test_a_key_is_never_cut_from_its_beginning() -> None:
    text = (b"x" * 900 + b"\n") + PEM.encode() + b"\n" + (b"y" * 900 + b"\n")
    parts = list(pieces(BytesIO(text), 1000))

    assert b"".join(parts) == text
    assert [part for part in parts if b"BEGIN RSA" in part and b"END RSA" not in part] == []


def test_a_line_without_end_or_space_is_left_out_and_the_next_is_there() -> None:
    parts = list(pieces(BytesIO(b"a" * 5000 + b"\nnext\n"), 1000))

    assert b"".join(parts).endswith(b"next\n")
    assert b"aaaa" not in b"".join(parts)


@for_each(
    ("text", "kept"),
    [
        (b"A=1\nB=2\nC=3\nD=4\nE=5\n", b"A=*\nB=*\nC=*\nD=*\nE=*\n"),
        (b"x\nexport A=1\nexport B=2\nRANK=3\nNCCL_DEBUG=x\nHF_TOKEN=5\ny", b"x\nexport A=*\nexport B=*\nRANK=3\nNCCL_DEBUG=x\nHF_TOKEN=*\ny"),
        (b'"env": {"A": "1", "RANK": "2", "B": "3 4"}, "x": {"A": "1"}', b'"env": {"A": "*", "RANK": "2", "B": "*"}, "x": {"A": "1"}'),
        (rb'{"a": "x\nA=1\nB=2\nRANK=3\nC=4\nD=5"}', rb'{"a": "x\nA=*\nB=*\nRANK=3\nC=*\nD=*"}'),
        (b"[0]: environ({'A': '1',\n[0]:          'RANK': '2',\n[0]:          'B': 'x {'})\n'C': '3'", b"[0]: environ({'A': *,\n[0]:          'RANK': '2',\n[0]:          'B': *})\n'C': '3'"),
        (b'"Env": [\n "A=1",\n "RANK=2"\n], "Cmd": ["B=3"]', b'"Env": [\n "A=*",\n "RANK=2"\n], "Cmd": ["B=3"]'),
        (b"loss=1\nlr=2\nstep 3\nA=4\n", b"loss=1\nlr=2\nstep 3\nA=4\n"),
    ],
)  # fmt: skip
def test_a_listing_of_variables_shows_only_harmless_ones(text: bytes, kept: bytes) -> None:
    counts: Counter[str] = Counter()

    masked = mask_environments(text, counts)

    assert masked == kept.replace(b"*", b"[masked-variable]")
    assert counts["variable"] == kept.count(b"*")
    assert mask_environments(masked, counts) == masked


WORDS = st.sampled_from(
    [
        "step",
        "loss",
        "0x7f12ab34",
        "->",
        "via",
        "[0]",
        "NCCL",
        "INFO",
        "token:",
        "--api-key",
        "guid",
        "@",
        "to",
        "cuda",
        "=",
    ]
)
TEMPLATES = st.lists(
    st.lists(st.one_of(WORDS, st.sampled_from(FORMS), st.just("{}"), st.just("0xab{}cd12"), st.just("gpu-{}:{}:{}")), max_size=6).map(" ".join),
    min_size=1,
    max_size=5,
)  # fmt: skip


@given(TEMPLATES, st.lists(st.integers(0, 300), min_size=12, max_size=12), st.integers(1, 3))
def test_lines_of_few_kinds_are_redacted_and_counted_as_one_text_however_often_they_come(
    templates: list[str], numbers: list[int], rounds: int
) -> None:
    """Each kind comes often enough to be learnt, with other digits each time. A mark before each line keeps names with values
    from reading like a listing of the environment, which lines of a bundle mask as a whole.
    """
    texts = [
        "".join(f"> {form.replace('{}', str(number + turn))}\n" for number in numbers for form in templates)
        for turn in range(rounds + 1)
    ]
    quick, slow = redactor(), redactor()
    lines = Lines(quick)

    assert [lines.redact(text.encode()) for text in texts] == [slow.redact(text).encode() for text in texts]
    assert quick.counts == slow.counts


def test_a_host_that_nobody_knew_is_named_in_each_line_of_nccl() -> None:
    spoken = [f"dc-{n % 3}.site_a:40{n}:4{n}00 [{n % 8}] NCCL INFO comm 0x{n * 77777:x} rank {n}" for n in range(40)]
    quick, slow = redactor(), redactor()

    done = Lines(quick).redact("\n".join(spoken).encode()).decode()

    assert done == slow.redact("\n".join(spoken))
    assert "site_a" not in done
    assert len({line.partition(":")[0] for line in done.split("\n")}) == 3


def test_a_known_place_with_a_new_word_in_it_is_looked_at_again() -> None:
    lines = Lines(redactor())
    often = "".join(f"gpu-12:1:{n} [0] says {n}\n" for n in range(9)).encode()
    lines.redact(often)

    assert lines.redact(often) == often.replace(b"gpu-12", b"host-2")
    assert lines.redact(b"gpu-13:1:4 [0] says 4\n") == b"gpu-13:1:4 [0] says 4\n"
    assert lines.redact(b"gpu-12:1:4 [0] says hf_" + b"a" * 30 + b"\n").endswith(b" says [masked-huggingface-token]\n")


def test_a_value_at_the_end_of_a_file_without_a_line_end_stays_with_its_name() -> None:
    data = b"- name: MYSQL_PASSWORD\n\n  value: letmein"

    assert [*pieces(BytesIO(data))] == [data]
    assert b"letmein" not in b"".join(Lines(redactor()).redact(piece) for piece in pieces(BytesIO(data), 30))
