"""Everything can be reached and used without a pointer."""


def focused(page) -> str:
    return page.evaluate(
        "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
    )


def test_tab_reaches_every_control_with_a_visible_focus(open_page, incident) -> None:
    page = open_page(incident("0001"))
    reached = set()
    unseen = []

    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(focused(page))
        if page.evaluate(
            "document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === 'none'"
        ):
            unseen.append(focused(page))

    assert {"search", "group", "mesh-canvas", "skyline-canvas", "theme", "help-open", "cite"} - reached <= {"group"}
    assert unseen == []


def test_arrows_move_the_selected_rank_in_mesh_and_skyline(open_page, incident) -> None:
    page = open_page(incident("0003"))

    page.focus("#mesh-canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    by_mesh = page.inner_text("#inspector h3")
    page.focus("#skyline-canvas")
    page.keyboard.press("Home")

    assert "Rank 1" in by_mesh
    assert "Rank 0" in page.inner_text("#inspector h3")
    assert "suspect" in page.inner_text("#inspector h3")


def test_arrows_and_plus_work_in_the_heat_map(open_page, incident) -> None:
    page = open_page(incident("0003"))
    page.focus("#heat summary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#heat-says:not(:empty)")  # drawn: keys before that have no rows to move in
    page.focus("#heat-canvas")

    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#heat-cursor:not(:empty)")
    first = page.inner_text("#heat-cursor")
    page.keyboard.press("ArrowLeft")
    second = page.inner_text("#heat-cursor")
    shown = page.evaluate("document.getElementById('heat-canvas').toDataURL()")
    page.keyboard.press("+")

    assert "rank 0" in first
    assert "not reached" in first
    assert "seq 23" in second
    assert page.evaluate("document.getElementById('heat-canvas').toDataURL()") != shown


def test_slash_searches_question_mark_helps_and_escape_closes(open_page, incident) -> None:
    page = open_page(incident("0001"))

    page.keyboard.press("/")
    page.keyboard.type("rank:1?")
    searched = focused(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    helped = page.is_visible("#help")
    page.keyboard.press("Escape")

    assert searched == "search"
    assert helped
    assert not page.is_visible("#help")
    assert page.input_value("#search") == ""
    assert page.locator(".dim").count() == 0


def test_enter_on_a_citation_goes_to_its_row(open_page, incident) -> None:
    page = open_page(incident("0001"))

    page.focus("#findings .cite >> nth=0")
    page.keyboard.press("Enter")

    assert focused(page) == "ev-E1"
