"""A bundle tells the same story without names, and holds nothing that must not leave."""

import gzip
import json
import pickle
import stat
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from cases import CASES, Case, load_cases, verdict_of
from collect.planted import HOSTS, PRIVATE, VARIABLE, plant, private_text
from forkpoint.errors import HostileInput, UnreadableInput, UsageError
from forkpoint.evidence import read
from forkpoint.gather.bundle import Bundle, BundleOrder, make_bundle
from forkpoint.gather.bundle_evidence import redact_dump
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.traces.dump import decode
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each
from small_jobs import SmallJob

ALL = load_cases()
WITH_SOURCE = frozenset(case.number for case in ALL[::10])
"""Reading source takes most of the time, and it is not redacted."""


def bundled(*paths: Path, out: Path, **more: object) -> Bundle:
    return make_bundle(BundleOrder(tuple(map(str, paths)), str(out), f"{out}.map.json", **more))  # type: ignore[arg-type]


def unpacked(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        found = {info.name: opened.extractfile(info) for info in opened.getmembers()}
        return {name: stream.read() for name, stream in found.items() if stream}


def story(verdict: Verdict) -> tuple[object, ...]:
    """All that is not a name."""
    fork = verdict.divergence
    return (
        verdict.cause,
        verdict.symptom,
        verdict.suspects,
        verdict.action,
        verdict.confidence,
        fork and (fork.kind, fork.seq, fork.first_visible_seq, fork.hang_seq, fork.channel),
        fork and [(cohort.ranks, cohort.role) for cohort in fork.cohorts],
        [(Path(site.file).name, site.line, site.function) for site in verdict.sites],
        [(finding.detector, finding.suspects) for finding in verdict.findings],
    )


@for_each("case", ALL, ids=lambda case: case.number, one_in=20)
def test_the_verdict_of_a_redacted_case_is_that_of_the_original(case: Case, tmp_path: Path) -> None:
    source = CASES / case.number / "source"
    code = (str(source),) if source.is_dir() and case.number in WITH_SOURCE else ()
    out = tmp_path / "ticket.tar.gz"

    bundle = bundled(case.capture, out=out, source=code)

    original = story(verdict_of(case.number, source=bool(code)))
    assert bundle.verdict
    assert story(bundle.verdict) == original
    assert story(diagnose(read([str(out)]), code)) == original
    assert bundle.left_out == ()


@pytest.fixture(scope="module")
def ticket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    folder = plant(tmp_path_factory.mktemp("planted") / "evidence")
    doctor = folder.parent / "doctor.json"
    doctor.write_text(
        json.dumps({"environ": {"PLANS": VARIABLE, "NCCL_DEBUG": "INFO"}, "says": private_text(0), HOSTS[0]: 1})
    )
    out = folder.parent / "ticket.tar.gz"
    return out, bundled(folder, out=out, doctors=(str(doctor),))


@for_each("private", PRIVATE)
def test_nothing_private_is_in_the_archive(ticket: tuple[Path, Bundle], private: str) -> None:
    archive, _ = ticket
    everything = {**unpacked(archive), "packed": archive.read_bytes(), "tar": gzip.decompress(archive.read_bytes())}
    escaped = json.dumps(private)[1:-1]

    assert len(everything) > 10
    assert [name for name, data in everything.items() if private.encode() in data or escaped.encode() in data] == []
    assert [name for name in everything if private in name] == []


def test_evidence_that_can_be_read_is_there_and_the_rest_is_said(ticket: tuple[Path, Bundle]) -> None:
    archive, bundle = ticket
    names = set(unpacked(archive))

    assert {"verdict.json", "report.html", "manifest.json", "doctor/1.json"} < names
    assert sum("trace" in name and "rank_" in name for name in names) == 2
    assert sum(name.endswith("log_rank_1.txt") for name in names) == 1
    assert [problem.text for problem in bundle.left_out] == ["neither a dump nor text: it cannot be redacted"]
    assert dict(bundle.removed)["private-key"] >= 4
    assert dict(bundle.removed)["variable"] >= 6
    manifest = json.loads(unpacked(archive)["manifest.json"])
    assert {file["name"] for file in manifest["files"]} == names - {"manifest.json"}
    assert manifest["removed"] == dict(bundle.removed)


def test_harmless_variables_stay_and_others_keep_their_names(ticket: tuple[Path, Bundle]) -> None:
    logs = b"".join(data for name, data in unpacked(ticket[0]).items() if "rank_0.txt" in name)
    doctor = json.loads(unpacked(ticket[0])["doctor/1.json"])

    assert b"NCCL_DEBUG=INFO\nPLANS=[masked-variable]\nA=[masked-variable]" in logs
    assert b"environ({'PLANS': [masked-variable], 'WORLD_SIZE': '2'})" in logs
    assert doctor["environ"] == {"NCCL_DEBUG": "INFO"}


def test_the_same_thing_has_the_same_name_in_every_file(ticket: tuple[Path, Bundle]) -> None:
    archive, bundle = ticket
    host = next(name for name, original in bundle.names.items() if original == HOSTS[0])
    inside = unpacked(archive)

    assert all(
        f"{host}:4000:4000".encode() in data for name, data in inside.items() if "rank_" in name and ".txt" in name
    )
    assert all(host.encode() in data for name, data in inside.items() if "trace" in name)


def test_the_map_stays_outside_for_its_owner_alone_and_is_never_packed(
    ticket: tuple[Path, Bundle], tmp_path: Path
) -> None:
    archive, bundle = ticket
    names = Path(f"{archive}.map.json")
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "old.map.json").write_bytes(names.read_bytes())
    (tmp_path / "evidence" / "log_rank_0.txt").write_text(private_text(0))

    again = bundled(tmp_path / "evidence", out=tmp_path / "again.tar.gz")

    assert stat.S_IMODE(names.stat().st_mode) == 0o600
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert json.loads(names.read_text())["names"] == bundle.names
    assert [problem.text for problem in again.left_out] == ["a map of pseudonyms: it must not leave this machine"]


def test_a_dry_run_says_the_same_and_writes_nothing(ticket: tuple[Path, Bundle], tmp_path: Path) -> None:
    archive, bundle = ticket
    evidence = archive.parent / "evidence"

    dry = bundled(evidence, out=tmp_path / "never.tar.gz", dry_run=True)

    sizes = {item.name: item.size for item in bundle.inside}
    assert list(tmp_path.iterdir()) == []
    assert dry.removed == bundle.removed
    assert {item.name: item.size for item in dry.inside if item.size is not None} == {
        name: size for name, size in sizes.items() if name.startswith("evidence/")
    }


def test_a_log_of_several_pieces_is_whole_in_the_archive_and_the_manifest_holds_its_hash(tmp_path: Path) -> None:
    evidence = plant(tmp_path / "evidence")
    with (evidence / "long_rank_0.log").open("w") as log:
        for step in range(120_000):
            away = f" from 10.9.{step // 250 % 200}.{step % 250}" if step < 2000 or step >= 118_000 else ""
            log.write(f"step {step} loss 0.{step}{away} by 0x7f{step:06x}\n")

    bundle = bundled(evidence, out=tmp_path / "t.tar.gz")

    inside = unpacked(tmp_path / "t.tar.gz")
    (name,) = (name for name in inside if name.endswith("long_rank_0.log"))
    addresses = {original: name for name, original in bundle.names.items() if name.startswith("ip-")}
    assert inside[name].count(b"\n") == 120_000
    assert f"step 7 loss 0.7 from {addresses['10.9.0.7']} by 0x7f000007\n".encode() in inside[name]
    assert f"step 119999 loss 0.119999 from {addresses['10.9.79.249']} by 0x7f01d4bf\n".encode() in inside[name]
    listed = {file["name"]: file for file in json.loads(inside["manifest.json"])["files"]}
    assert {name: sha256(data).hexdigest() for name, data in inside.items() if name != "manifest.json"} == {
        name: file["sha256"] for name, file in listed.items()
    }
    assert listed[name]["bytes"] == len(inside[name])


def test_a_folder_with_the_archive_itself_in_it_does_not_pack_that(tmp_path: Path) -> None:
    evidence = plant(tmp_path / "evidence")
    out = evidence / "ticket.tar.gz"
    first = bundled(evidence, out=out)

    second = bundled(evidence, out=out)

    assert [item.name for item in second.inside] == [item.name for item in first.inside]


def test_standard_input_and_nothing_to_diagnose_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(UnreadableInput):
        bundled(tmp_path / "empty", out=tmp_path / "x.tar.gz")
    (tmp_path / "log_rank_0.txt").write_text(private_text(0))
    with pytest.raises(UsageError, match="is not JSON"):
        bundled(tmp_path / "log_rank_0.txt", out=tmp_path / "x.tar.gz", doctors=(str(tmp_path / "log_rank_0.txt"),))
    assert not (tmp_path / "x.tar.gz").exists()


# Dumps


def upper(text: str) -> str:
    return text.upper()


@for_each(
    "data",
    [encode(dump([entry(), entry()])), encode([entry()]), *(pickle.dumps(dump([entry()]), n) for n in (2, 3, 4, 5))],
)
def test_a_rewritten_dump_is_the_same_dump_with_other_texts(data: bytes) -> None:
    kept = redact_dump(data, "rank_0", str)
    changed = redact_dump(data, "rank_0", lambda text: text.replace("train", "t"))

    assert pickle.loads(kept) == pickle.loads(data)
    assert "train" in str(pickle.loads(data))
    assert pickle.loads(changed) == _replaced(pickle.loads(data))


def _replaced(value: object) -> object:
    if isinstance(value, str):
        return value.replace("train", "t")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return type(value)(_replaced(item) for item in value) if isinstance(value, list | tuple) else value


def test_a_cut_dump_stays_cut_with_the_same_entries_and_ends_with_a_whole_text() -> None:
    job = SmallJob(2)
    for line in range(40):
        job.op(line=line)
    data = job.dump(0)
    for end in range(len(data) // 2, len(data) - 1, 41):
        before = decode(data[:end], "x")

        after = redact_dump(data[:end], "x", lambda text: text.replace("/train/", "/somewhere/else/"))

        assert decode(after, "x").header.cut
        assert len(decode(after, "x").group) == len(before.group)


def test_what_the_recorder_itself_says_stays_whatever_a_host_is_called() -> None:
    data = redact_dump(encode(dump([entry()])), "x", lambda text: "host-1" if text in ("entries", "state") else text)

    assert pickle.loads(data) == pickle.loads(encode(dump([entry()])))


def test_a_dump_with_an_environment_shows_only_harmless_variables() -> None:
    environment = {"PATH": "/usr/bin", "HOME": "/root", "ACME_LOCK": "maple", "NCCL_DEBUG": "INFO"}

    told = pickle.loads(redact_dump(encode(dump([entry()], env=environment)), "x", str))
    alone = pickle.loads(redact_dump(encode(dump([entry()], made={"ACME_LOCK": "maple"})), "x", str))

    assert told["env"] == {**environment, "HOME": "[masked-value]", "ACME_LOCK": "[masked-value]"}
    assert alone["made"] == {"ACME_LOCK": "maple"}


@pytest.mark.parametrize("data", [pickle.dumps(print, 2), pickle.dumps({"entries": [{"frames": b"secret" * 9}]}, 4)])
def test_a_pickle_that_is_no_plain_dump_is_refused(data: bytes) -> None:
    with pytest.raises((HostileInput, UnreadableInput)):
        redact_dump(data, "x", str)
