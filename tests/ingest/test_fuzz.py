from ingest.fuzz import fuzz_in_child


def test_mutated_dumps_are_refused_or_read_and_never_harm():
    result = fuzz_in_child(count=400, seed=2)

    assert result["mutations"] == 400
