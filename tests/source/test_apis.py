"""The table of known libraries says nothing twice, and nothing in vain."""

from forkpoint.source.apis import is_rank_word, known_apis


def test_every_particular_name_is_a_known_function_or_method() -> None:
    apis = known_apis()

    assert apis.distinct - apis.functions.keys() - apis.methods.keys() == set()


def test_no_rank_word_is_listed_that_its_ending_says_already() -> None:
    assert [word for word in known_apis().words["rank"] if word.endswith("_rank")] == []
    assert is_rank_word("is_leader_rank")
