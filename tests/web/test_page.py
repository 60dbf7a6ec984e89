"""The page in a real browser: what a reader sees, chooses and follows."""

import base64
from dataclasses import replace

import pytest

import verdicts

SIX = ["0001", "0002", "0003", "0004", "0005", "0006"]


def shown(*often):
    """Of the six incidents these in `make test`, and all in `make sweep`."""
    return pytest.mark.parametrize(
        "number", [n if n in often else pytest.param(n, marks=pytest.mark.sweep) for n in SIX]
    )


SECTIONS = [
    "answer",
    "mesh",
    "skyline",
    "lanes",
    "hypotheses",
    "stacks",
    "timeline",
    "arrivals",
    "heat",
    "findings",
    "evidence",
]


def pixels(page, canvas: str) -> str:
    return page.evaluate("(id) => document.getElementById(id).toDataURL()", canvas)


@shown("0001", "0004")
def test_an_incident_opens_from_disk_and_begins_with_its_sentence(open_page, incident, number) -> None:
    verdict = incident(number)
    page = open_page(verdict)

    order = page.eval_on_selector_all("main > section", "all => all.map((s) => s.id)")
    first_picture = page.locator("canvas").first.bounding_box()
    sentence = page.locator("h1").bounding_box()

    assert order == SECTIONS
    assert sentence["y"] < first_picture["y"]
    assert page.inner_text("h1").split() == verdict.headline.replace("`", "").split()
    assert page.locator("#answer meter").count() == 1


@pytest.mark.parametrize(
    ("number", "titles"),
    [
        ("0001", ["Majority: ranks 1-3", "Odd one out: rank 0"]),
        ("0005", ["Other side: rank 3", "Suspect: rank 2"]),
    ],
)
def test_the_stacks_of_two_sides_call_nobody_odd_but_a_suspect(open_page, incident, number, titles) -> None:
    page = open_page(incident(number))

    shown = page.eval_on_selector_all("#stacks .stack h3", "all => all.map((h) => h.lastChild.textContent)")

    assert shown == titles


def test_where_nobody_is_suspected_no_side_is_called_odd(open_page, incident) -> None:
    page = open_page(replace(incident("0001"), suspects=()))

    shown = page.eval_on_selector_all("#stacks .stack h3", "all => all.map((h) => h.lastChild.textContent)")

    assert shown == ["One side: ranks 1-3", "Another side: rank 0"]


def test_what_is_missing_is_said_with_the_verdict(open_page, incident) -> None:
    page = open_page(incident("0002"))

    assert "no dump of rank 3" in page.inner_text("#answer")
    assert "3 / 4 ranks" in page.inner_text("#answer .coverage .partial >> nth=0")


def test_a_claim_leads_to_its_evidence_row(open_page, incident) -> None:
    page = open_page(incident("0001"))

    page.click("#timeline .cite >> text=T2")

    assert page.evaluate("document.activeElement.id") == "ev-T2"
    assert page.locator("tr:target").get_attribute("id") == "ev-T2"
    assert "timed out" in page.inner_text("tr:target")


def test_files_named_from_the_root_and_from_here_share_no_folder(open_page) -> None:
    """`forkpoint diagnose /dumps logs`: the page once looked for their folder for ever."""
    dump = replace(verdicts.ENTRY, file="/dumps/nccl_trace_rank_0")
    finding = replace(verdicts.FINDING, evidence=(dump, replace(verdicts.WATCHDOG, file="logs/rank_1.txt")))
    page = open_page(replace(verdicts.FOUND, findings=(finding,), hypotheses=(), moments=()))

    assert page.locator("#evidence td.file").all_inner_texts() == ["/dumps/nccl_trace_rank_0", "logs/rank_1.txt"]


@shown("0002", "0005")
def test_every_claim_has_an_evidence_row_that_exists(open_page, incident, number) -> None:
    page = open_page(incident(number))

    dead = page.eval_on_selector_all(
        "a.cite", "all => all.filter((a) => !document.querySelector(a.hash)).map((a) => a.hash)"
    )
    silent = page.eval_on_selector_all(
        ".moment, .finding, .lanes tbody tr, table.lanes > tr",
        "all => all.filter((row) => !row.querySelector('a.cite')).length",
    )

    assert dead == []
    assert silent == 0


@pytest.mark.parametrize(
    ("query", "found"), [("rank:3", "1 of 4"), ("0-1", "2 of 4"), ("host:vm", "2 of 4"), ("rank:9", "no rank")]
)
def test_a_search_dims_the_rest_in_all_pictures(open_page, incident, query, found) -> None:
    page = open_page(incident("0001"))
    before = {name: pixels(page, name) for name in ("mesh-canvas", "skyline-canvas")}

    page.fill("#search", query)

    assert found in page.inner_text("#found")
    assert all(pixels(page, name) != shown for name, shown in before.items())


def test_rows_about_other_ranks_are_dimmed_and_come_back(open_page, incident) -> None:
    page = open_page(incident("0001"))

    page.fill("#search", "rank:1")
    dim = page.locator(".dim").all_inner_texts()
    page.click("#clear")

    assert any(text.startswith("W\nRank 0") or "Rank 0" in text for text in dim)
    assert not any("Ranks 0-3" in text for text in dim)
    assert page.locator(".dim").count() == 0


def test_a_press_on_the_legend_shows_only_that_state(open_page, incident) -> None:
    page = open_page(incident("0003"))

    page.click("#legend button >> text=behind")

    assert "1 of 4" in page.inner_text("#found")


def test_the_stacks_mark_where_they_first_differ(open_page, incident) -> None:
    page = open_page(incident("0005"))

    assert page.locator(".frames .parts .function").all_inner_texts() == ["run", "run"]
    assert page.locator(".site .marked").first.inner_text().strip().startswith("▶")


def test_without_embedded_source_the_condition_stands_alone(open_page, incident) -> None:
    verdict = incident("0001")
    page = open_page(replace(verdict, picture=replace(verdict.picture, quotes=(), embeds_source=False)))

    assert page.inner_text("#stacks pre.condition") == "is_main_process()"
    assert page.locator("pre.source").count() == 0
    assert "--no-embed-source" in page.inner_text("#findings")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_panel_fits_one_screen_and_nothing_covers_it(open_page, incident, width, height) -> None:
    page = open_page(incident("0001"), viewport={"width": width, "height": height})

    parts = [".hero h1", ".hero svg", ".hero pre.source", ".hero pre.patch"]
    boxes = [page.locator(part).bounding_box() for part in parts]

    assert all(box["y"] + box["height"] <= height and box["x"] + box["width"] <= width for box in boxes)
    covered = "(part) => { const b = document.querySelector(part).getBoundingClientRect(); const e = document.elementFromPoint(b.x + 8, b.bottom - 4); return !document.querySelector('.hero').contains(e); }"
    assert not any(page.evaluate(covered, part) for part in parts)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_suspect_is_the_one_thing_that_is_coloured_in_the_drawing(open_page, incident) -> None:
    page = open_page(incident("0001"))

    colours = page.eval_on_selector_all(
        ".fork-drawing text, .fork-drawing path",
        "all => all.map((e) => [e.textContent, getComputedStyle(e)[e.tagName === 'text' ? 'fill' : 'stroke']])",
    )
    alarm = [text for text, colour in colours if colour == "rgb(176, 74, 0)"]
    assert alarm == ["", "rank 0"]


def test_the_line_opens_in_an_editor_and_the_image_is_there_to_share(open_page, incident) -> None:
    page = open_page(incident("0001"))

    editor = page.get_attribute(".hero-place a", "href")
    assert editor.startswith("vscode://file/")
    assert editor.endswith("/cases/0001/source/train.py:15")
    image = page.get_attribute("#share", "href").removeprefix("data:image/svg+xml;base64,")
    assert base64.b64decode(image).startswith(b"<svg ")


def test_panels_with_nothing_in_them_are_left_out(open_page, incident) -> None:
    page = open_page(incident("0139"))

    assert page.eval_on_selector_all("main > section:not([hidden])", "all => all.map((s) => s.id)") == [
        "answer",
        "timeline",
        "findings",
        "evidence",
    ]
    assert not page.is_visible("#bar")
    assert not page.is_visible("#legend")


def test_of_values_that_differ_it_is_not_said_that_nothing_is_known(open_page, incident) -> None:
    facts = open_page(incident("0140")).inner_text(".facts")

    assert "In values, not in calls" in facts
    assert "no dump" not in facts


def test_on_a_phone_the_copy_button_covers_no_code(open_page, incident) -> None:
    page = open_page(incident("0002"))
    page.set_viewport_size({"width": 390, "height": 844})

    boxes = page.eval_on_selector_all(
        ".hero .copied > *", "all => all.map((e) => [e.getBoundingClientRect().top, e.getBoundingClientRect().bottom])"
    )
    (_, code_ends), (button_begins, _) = boxes
    assert code_ends <= button_begins


def test_a_report_without_a_picture_says_so_and_tells_the_rest(open_page, incident) -> None:
    page = open_page(replace(incident("0001"), picture=None))

    assert "without pictures" in page.inner_text("#mesh")
    assert page.locator("canvas").count() == 0
    assert page.locator(".lanes .odd").count() == 1
    assert page.locator(".moment").count() > 5


def test_a_healthy_job_has_no_panels_of_a_fork(open_page, incident) -> None:
    page = open_page(incident("0006"))

    for section in ("lanes", "stacks", "findings"):
        assert not page.locator(f"#{section}").is_visible()


def test_a_patch_is_copied_as_it_is(open_page, incident) -> None:
    verdict = incident("0001")
    page = open_page(verdict, permissions=["clipboard-read", "clipboard-write"])
    patch = next(fix.patch for fix in verdict.fixes if fix.patch)

    page.click("#findings .copy >> nth=0")
    page.wait_for_selector("#findings .copy >> text=Copied")

    assert page.evaluate("navigator.clipboard.readText()") == patch


def test_dark_follows_the_system_and_can_be_switched(open_page, incident) -> None:
    page = open_page(incident("0001"), color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark, drawn = page.evaluate(paper), pixels(page, "skyline-canvas")

    page.click("#theme")

    assert dark == "rgb(20, 23, 26)"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert pixels(page, "skyline-canvas") != drawn


def test_print_is_black_and_white_with_letters(open_page, incident) -> None:
    page = open_page(incident("0003"), color_scheme="dark")

    page.emulate_media(media="print")
    page.wait_for_selector("html[data-paper]")
    coloured = page.evaluate("""() => {
        const canvas = document.getElementById("mesh-canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4)
            if (Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 2) found++;
        return found;
    }""")

    assert coloured == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("#search")
    assert page.is_visible("#legend")


@shown("0003", "0006")
def test_a_phone_scrolls_the_page_only_downwards(open_page, incident, number) -> None:
    page = open_page(incident(number), viewport={"width": 360, "height": 740}, has_touch=True)
    page.click("#heat summary")

    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.is_visible("#legend")
