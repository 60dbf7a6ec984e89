"""Nearly five hundred planted secrets, and what a bundle does when one gets through."""

import pickle
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from collect.many_secrets import ALL as MANY
from collect.many_secrets import Plant
from collect.more_secrets import MORE
from collect.planted import WATCHDOG
from forkpoint.errors import Unsafe
from forkpoint.gather import bundle as bundling
from forkpoint.gather.bundle import BundleOrder, make_bundle
from forkpoint.gather.bundle_evidence import FoundEvidence, Redacting, redact_dump
from forkpoint.redact import Redactor
from forkpoint.redact.logs import pieces
from forkpoint.redact.rules import in_python, rules
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each

ALL = (*MANY, *MORE)
TOKEN = "gh" + "p_Zk29TbWm4Lc8RXq7Zk29TbWm4Lc8RXq7Ab12"


def order(evidence: Path, **more: object) -> BundleOrder:
    here = evidence.parent
    return BundleOrder((str(evidence),), str(here / "t.tar.gz"), str(here / "t.map.json"), **more)  # type: ignore[arg-type]


def texts(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        streams = {info.name: opened.extractfile(info) for info in opened.getmembers()}
        return {name: stream.read().decode("utf-8", "replace") for name, stream in streams.items() if stream}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each secret twice: in a long log, and alone in a file that ends with it."""
    evidence = tmp_path_factory.mktemp("many") / "evidence"
    evidence.mkdir()
    lines = [f"> begins\n{plant.text}\n> ends" for plant in ALL if not plant.is_file]
    (evidence / "log_rank_0.txt").write_text(WATCHDOG.format(rank=0) + "\n".join(lines) + "\n")
    for number, plant in enumerate(ALL):
        (evidence / f"alone{number}_rank_1.log").write_text(plant.text)
    make_bundle(order(evidence))
    return texts(evidence.parent / "t.tar.gz")


def survivors(packed: dict[str, str], *, promised: bool) -> list[str]:
    def survives(plant: Plant) -> bool:
        return any(secret in text or secret in name for name, text in packed.items() for secret in plant.gone)

    return [plant.kind for plant in ALL if plant.promised is promised and survives(plant)]


def test_no_secret_of_a_promised_kind_is_in_the_bundle(packed: dict[str, str]) -> None:
    assert len(packed) > len(ALL) >= 480
    assert survivors(packed, promised=True) == []


def test_of_other_kinds_at_most_one_in_ten_is_in_the_bundle(packed: dict[str, str]) -> None:
    others = sum(not plant.promised for plant in ALL)

    assert len(survivors(packed, promised=False)) <= others // 10


def test_names_of_files_hold_no_address_and_no_mail(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    for name in ("log_10.77.3.4_rank_0.txt", "log_marvin@lab.example.edu_rank_1.txt", f"x{TOKEN}_rank_2.log"):
        (evidence / name).write_text(WATCHDOG.format(rank=0))

    make_bundle(order(evidence))

    inside = texts(tmp_path / "t.tar.gz")
    whole = " ".join((*inside, *inside.values()))
    assert [word for word in ("10.77.3.4", "marvin", "example.edu", TOKEN[4:]) if word in whole] == []


def test_an_archive_in_which_something_is_left_is_not_written_and_the_user_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(Redacting):
        def redact(self, found: FoundEvidence) -> Iterator[bytes]:
            return pieces(found.stream)

    evidence = tmp_path / "evidence"
    evidence.mkdir()
    (evidence / "log_rank_0.txt").write_text(WATCHDOG.format(rank=0))
    (evidence / "log_rank_1.txt").write_text(f"fine\nusing {TOKEN} now\n")
    monkeypatch.setattr(bundling, "Redacting", Forgetful)

    with pytest.raises(Unsafe, match=r"not written.*log_rank_1\.txt line 2 \(github-token\).*--leave-out"):
        make_bundle(order(evidence))

    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]
    make_bundle(order(evidence, leave_out=("*_rank_1.txt",)))
    assert [name for name in texts(tmp_path / "t.tar.gz") if "rank_1" in name] == []


@for_each(
    "extra",
    [
        {"password": "c0rrect-horse"},
        {"env": {"DB_PASSWORD": "c0rrect-horse", "x": "y"}},
        {"argv": ["train.py", "--password", "c0rrect-horse"]},
        {"first": "c0rrect-horse", "password": "c0rrect-horse"},
        {"a": {"password": "x1"}, "b": {"password": "c0rrect-horse"}},
        {TOKEN: 1, "c": {"api_key": "Xq7Zk29TbWm4"}},
    ],
)
@for_each("protocol", [2, 4])
def test_a_key_in_a_dump_gives_its_value_away(extra: dict[str, object], protocol: int) -> None:
    given = dump([{**entry(), **extra}])
    for data in (pickle.dumps(given, protocol), encode(given)):
        said = str(pickle.loads(redact_dump(data, "x", Redactor().redact)))

        assert [secret for secret in ("c0rrect-horse", TOKEN, "Xq7Zk29TbWm4") if secret in said] == []
        assert "all_reduce" in said


def test_every_published_rule_is_one_of_python() -> None:
    assert len(rules()) > 200
    for rule in rules():
        re.compile(rule.source)
        assert rule.keywords
    assert in_python(r"""\b(LTAI(?i)[a-z0-9]{20})(?:[\x60'"\s;]|\\[nr]|$)""") == (
        r"(?<![A-Za-z0-9])(LTAI(?i:[a-z0-9]{20}))(?![A-Za-z0-9])"
    )
