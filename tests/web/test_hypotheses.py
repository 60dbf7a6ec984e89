"""What explains an incident, in the browser: the cards, the ranks they name, and the replay that can be played."""

from dataclasses import replace

import pytest

import verdicts

STEPS = ("suppose rank 0 had gone on", "then seq 16 finishes", "then seq 17 finishes")
PLAYED = replace(verdicts.FOUND, hypotheses=(replace(verdicts.DECIDED, steps=STEPS), verdicts.STALLED))
FAR_MS = 3_600_000
"""Later than any page can have come on its own."""
STEP_MS = 1200


def standing(page) -> list[str]:
    """Of each step: whether it is the current one, dimmed, or done."""
    return page.eval_on_selector_all(".player li", "all => all.map((step) => step.className)")


@pytest.fixture
def player(open_page):
    """A page with a replay of three steps and a clock that only the test moves."""
    page = open_page(PLAYED)
    stop_clock(page)
    return page


def stop_clock(page) -> None:
    """An installed clock goes on by itself until it is told to stand."""
    page.clock.install(time=0)
    page.clock.pause_at(FAR_MS)


def press(page, name: str) -> None:
    """Also one that cannot go on, on which a browser would wait: it has to stay where it is."""
    page.click(f".player button:has-text('{name}')", force=True)


def test_the_readings_are_shown_in_order_and_the_first_is_the_verdict(open_page) -> None:
    page = open_page(verdicts.FOUND)

    titles = page.locator("#hypotheses h3").all_inner_texts()
    cards = page.locator("#hypotheses article")

    assert [" ".join(title.split()) for title in titles] == [
        "likely Ranks took different paths the verdict",
        "possible A rank is held up in its own code",
    ]
    assert "divergent-path of rank 0" in cards.nth(0).inner_text()
    assert "host-stall or rank-lost of rank 0 or rank 2" in cards.nth(1).inner_text()


def test_a_card_tells_what_speaks_for_it_what_it_lacks_and_what_decides(open_page) -> None:
    page = open_page(verdicts.FOUND)

    rows = [
        dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))
        for card in page.locator("#hypotheses article").all()
    ]

    assert rows[0]["For"].split() == ["E1", "E2"]
    assert rows[0]["Replay"].startswith("Had rank 0 left out its call")
    assert rows[1]["Against"].split() == ["E2"]
    assert rows[1]["Lacks"] == "the log of rank 0"
    assert rows[1]["Decided by"].split("\n")[0] == "py-spy dump --pid 77"
    assert page.locator("#hypotheses .player").count() == 1


def test_what_decides_is_copied_as_it_is(open_page) -> None:
    page = open_page(verdicts.FOUND, permissions=["clipboard-read", "clipboard-write"])

    page.click("#hypotheses .copy >> nth=1")
    page.wait_for_selector("#hypotheses .copy >> text=Copied")

    assert page.evaluate("navigator.clipboard.readText()") == "py-spy dump --pid 77"


def test_a_verdict_that_is_not_decided_marks_no_reading(open_page) -> None:
    page = open_page(replace(verdicts.INCONCLUSIVE, hypotheses=(verdicts.STALLED, verdicts.DECIDED)))

    assert page.locator("#hypotheses article").count() == 2
    assert page.locator("#hypotheses .flag").count() == 0


def test_a_healthy_job_has_nothing_to_explain(open_page, incident) -> None:
    assert not open_page(incident("0006")).is_visible("#hypotheses")


def test_a_press_on_ranks_shows_only_these_and_a_second_press_all(open_page, incident) -> None:
    page = open_page(replace(incident("0001"), hypotheses=PLAYED.hypotheses))

    page.click("#hypotheses .ranks:has-text('rank 2')")
    found, dim = page.inner_text("#found"), page.locator("#hypotheses .dim h3").all_inner_texts()
    pressed = page.get_attribute("#hypotheses .ranks:has-text('rank 2')", "aria-pressed")
    page.click("#hypotheses .ranks:has-text('rank 2')")

    assert (found, pressed) == ("1 of 4 ranks", "true")
    assert [text.split()[0] for text in dim] == ["likely"]
    assert page.inner_text("#found") == "4 ranks"


def test_every_second_rank_can_be_shown_too(open_page) -> None:
    halves = replace(verdicts.STALLED, sides=((0, 2, 4, 6), (1, 3, 5, 7)))
    page = open_page(replace(verdicts.INCONCLUSIVE, hypotheses=(halves,)))

    page.click("#hypotheses .ranks >> nth=1")

    assert page.input_value("#search") == "rank:1-7/2"
    assert page.inner_text("#found") == "4 of 8 ranks"


def test_next_and_back_step_and_stay_within_the_replay(player) -> None:
    seen = [standing(player)]
    for name in ("Back", "Next", "Next", "Next", "Back"):
        press(player, name)
        seen.append(standing(player))

    first, second, third = ["now", "later", "later"], ["", "now", "later"], ["", "", "now"]
    assert seen == [first, first, second, third, third, second]
    assert player.get_attribute(".player li >> nth=1", "aria-current") == "step"
    assert player.locator(".player [aria-current]").count() == 1
    assert player.inner_text("#status") == "Step 2 of 3: then seq 16 finishes"


def test_play_goes_on_by_itself_and_stops_at_the_end(player) -> None:
    press(player, "Play")
    seen = [standing(player)]
    for _ in range(4):
        player.clock.run_for(STEP_MS)
        seen.append(standing(player))

    assert [step.index("now") for step in seen] == [0, 1, 2, 2, 2]
    assert player.locator(".player button").all_inner_texts() == ["Back", "Play", "Next"]


def test_play_can_be_paused_and_begins_again_at_the_end(player) -> None:
    press(player, "Play")
    player.clock.run_for(STEP_MS)
    press(player, "Pause")
    player.clock.run_for(5 * STEP_MS)
    paused = standing(player).index("now")
    press(player, "Next")
    press(player, "Play")

    assert paused == 1
    assert standing(player).index("now") == 0
    assert player.locator(".player button").all_inner_texts()[1] == "Pause"


def test_a_step_by_hand_ends_playing(player) -> None:
    press(player, "Play")
    press(player, "Next")
    player.clock.run_for(5 * STEP_MS)

    assert standing(player).index("now") == 1


def test_the_keys_step_from_any_of_its_buttons(player) -> None:
    player.focus(".player button:has-text('Next')")
    seen = []
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "End", "Home", "Enter"):
        player.keyboard.press(key)
        seen.append(standing(player).index("now"))

    assert seen == [1, 2, 2, 1, 0, 2, 0, 1]
    assert player.evaluate("document.activeElement.textContent") == "Next"


@pytest.mark.parametrize(("motion", "seconds"), [("reduce", "0s"), ("no-preference", "0.3s")])
def test_steps_fade_only_for_readers_who_do_not_mind_motion(open_page, motion, seconds) -> None:
    page = open_page(PLAYED, reduced_motion=motion)
    stop_clock(page)

    press(page, "Play")
    page.clock.run_for(STEP_MS)

    assert standing(page).index("now") == 1
    lasts = page.evaluate("getComputedStyle(document.querySelector('.player li')).transitionDuration")
    assert lasts.split(", ")[0] == seconds


def test_on_paper_every_step_is_read_and_no_button_is_left(open_page) -> None:
    page = open_page(PLAYED)

    page.emulate_media(media="print")
    page.wait_for_selector("html[data-paper]")

    assert (
        page.eval_on_selector_all(".player li", "all => all.map((step) => getComputedStyle(step).opacity)") == ["1"] * 3
    )
    assert not page.is_visible(".player button >> nth=0")
    assert page.is_visible("#hypotheses .ranks >> nth=0")
