"""The report page in Chromium: it loads without a word on the console, and slider, filters, map and verification work."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_runs import DIGITS, attacked, certified, classifier, poisoned

from vauban.page.report import write_report
from vauban.runs.run import Run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking", "--no-first-run"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page is not tried in a browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: the page is not tried in a browser")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    certified(made / "gaussian", "gaussian:sigma=0.5", 100)
    certified(made / "band", "band:size=10", 400)
    poisoned(made / "poisoned", 4)
    attacked(made / "attack", made / "gaussian")
    return made


class Tab:
    """A page in the browser; everything it says on its console, and every request it makes, is kept."""

    def __init__(self, browser: Any, page: Path, **options: Any):
        self.context = browser.new_context(**options)
        self.page, self.said, self.requests = self.context.new_page(), [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda problem: self.said.append(str(problem)))
        self.page.on("request", lambda request: self.requests.append(request.url[:80]))
        self.page.goto(page.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def slide(self, selector: str, value: float) -> None:
        self.page.eval_on_selector(
            selector, "(box, value) => { box.value = value; box.dispatchEvent(new Event('input')); }", value
        )

    def verify(self) -> str:
        self.page.click("#verify")
        self.page.wait_for_selector("#verdict:not([hidden])")
        return str(self.page.get_attribute("#verdict", "class"))

    def close(self) -> None:
        local = [url for url in self.requests if url.startswith(("file:", "data:"))]
        assert self.said == []
        assert self.requests == local
        self.context.close()


@pytest.fixture(scope="module")
def digits(folder: Path) -> Path:
    return write_report([Run.open(folder / "gaussian")], folder / "digits.html", attacks=[folder / "attack"])


def test_the_slider_shows_which_inputs_survive(browser: Any, digits: Path, folder: Path) -> None:
    certs, tab = Run.open(folder / "gaussian").certificates(), Tab(browser, digits)
    for radius in (0.0, 0.4):
        tab.slide("#radius", radius)
        shown = float(tab.page.input_value("#radius"))
        kept = int(certs.certified(shown).sum())
        assert tab.text("#survivors").startswith(f"{kept} of 100 inputs")
        assert tab.text("#number-certified") == str(kept)
        tab.page.check("input[value=certified]")
        assert tab.page.locator(".card").count() == min(50, kept)
        assert tab.page.locator(".card.lost").count() == 0
    tab.close()


def test_filters_pages_and_search(browser: Any, digits: Path, folder: Path) -> None:
    certs, tab = Run.open(folder / "gaussian").certificates(), Tab(browser, digits)
    assert tab.page.locator(".card").count() == 50
    tab.page.click("#next")
    assert tab.text("#gallery-text") == "51 to 100 of 100 inputs"
    tab.page.check("input[value=undecided]")
    assert tab.page.locator(".card").count() == int(tab.text("#number-undecided"))
    assert set(tab.page.locator(".card .badge").all_inner_texts()) == {"not certified"}
    assert tab.page.locator("input[value=wrong]").is_hidden()
    assert "certified for another" not in tab.text("#summary")
    assert certs.certified_elsewhere == 0
    shares = {"undecided": certs.undecided, "outvoted": 1 - certs.clean_accuracy}
    assert certs.undecided > 0
    assert {word: int(tab.text(f"#number-{word}")) for word in shares} == {
        word: round(100 * share) for word, share in shares.items()
    }
    tab.page.check("input[value=all]")
    tab.page.fill("#find", "9900")
    assert tab.page.locator(".card").count() == 1
    tab.page.fill("#find", "")
    tab.page.select_option("#order", "most")
    radii = [float(text) for text in tab.page.locator(".card dd:nth-of-type(1)").all_inner_texts()[:20]]
    assert radii == sorted(radii, reverse=True)
    tab.close()


def test_the_curve_says_its_numbers_under_the_pointer(browser: Any, digits: Path) -> None:
    tab = Tab(browser, digits)
    box = tab.page.locator("#curve svg").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    tab.page.mouse.move(box["x"] + box["width"] / 3 + 5, box["y"] + box["height"] / 2)
    tab.page.wait_for_selector("#tooltip:not([hidden])")
    assert "certified of these inputs (%)" in tab.text("#tooltip")
    assert tab.page.locator(".card figure:has-text('closest attack')").count() == 2
    assert "Not all inputs were attacked" in tab.text("#curve-text")
    tab.close()


def test_verification_is_green_and_an_altered_count_turns_it_red(browser: Any, digits: Path, folder: Path) -> None:
    tab = Tab(browser, digits)
    assert tab.verify() == "box good"
    assert tab.text("#verdict").startswith("100 of 100 claims recomputed")
    assert "Not checked: the title, names of runs and classes, pictures, attacks" in tab.text("#verdict")
    tab.close()
    line = next(
        text for text in (folder / "gaussian" / "tallies.jsonl").read_text().splitlines() if '"votes":200' in text
    )
    inside = json.dumps(line)[1:-1]
    count = str(max(json.loads(line)["counts"].values()))
    text = digits.read_text()
    assert text.count(inside) == 1
    altered = digits.with_name("altered.html")
    altered.write_text(text.replace(inside, inside.replace(f":{count}", f":{int(count) - 1}", 1)))
    tab = Tab(browser, altered)
    assert tab.verify() == "box bad"
    assert "NOT as claimed: 1 claim is wrong" in tab.text("#verdict")
    assert tab.page.locator(".card.bad").count() == 1
    tab.close()


def test_the_page_says_what_the_manifest_says_whatever_else_is_inside(browser: Any, digits: Path) -> None:
    text, edited = digits.read_text(), digits.with_name("edited.html")
    lies = '"threat":{"metric":"L9 norm","ball":"closed","integer":true},"about":[["model","another"]],"rho":1e-9,'
    edited.write_text(text.replace('"runs":[{', '"runs":[{' + lies, 1))
    tab = Tab(browser, edited)
    shown = tab.text("body")
    assert "L9 norm" not in shown
    assert "another" not in tab.text("#about")
    assert "confidence 0.999 " in shown
    assert tab.text("#title") == "mnist:split=test, gaussian:sigma=0.5, 200 votes per input"
    tab.close()


def test_a_page_without_its_seal_is_not_green(browser: Any, folder: Path) -> None:
    shutil.copytree(folder / "band", folder / "unsealed")
    (folder / "unsealed" / "seal.json").unlink()
    tab = Tab(browser, write_report([Run.open(folder / "unsealed")], folder / "unsealed.html", views=0))
    assert tab.verify() == "box open"
    assert "has no seal" in tab.text("#verdict")
    assert "vauban verify FOLDER" in tab.page.text_content("#unproven")
    tab.close()


def test_an_input_that_is_wrong_already_has_no_distance(browser: Any, digits: Path) -> None:
    text, edited = digits.read_text(), digits.with_name("zero.html")
    found = re.search(r'"attack":\{"threat":.*?"distance":([^,]+),', text)
    assert found is not None
    edited.write_text(text.replace(found[0], found[0].replace(f'"distance":{found[1]},', '"distance":0.0,'), 1))
    tab = Tab(browser, edited)
    assert tab.page.locator(".card:has-text('wrong without any change: answer')").count() == 1
    tab.close()


def test_a_long_specification_is_shortened_in_the_title_only(browser: Any, tmp_path: Path) -> None:
    sigmas = "/".join(["0.5", "0.6"] * 392)
    smoothed = classifier(f"gaussian:sigma={sigmas}")
    smoothed.arithmetic = "float"
    smoothed.certify(DIGITS.select(5000), n=100, alpha=0.01, seed=1, progress=False, out=tmp_path / "run")
    tab = Tab(browser, write_report([Run.open(tmp_path / "run")], tmp_path / "long.html", views=0))
    assert tab.text("#title") == "mnist:split=test, gaussian:sigma=0.5/0.6/0.5/0.6/0.5/0.6/…, 100 votes per input"
    assert sigmas in tab.page.get_attribute("#title", "title")
    assert sigmas in tab.text("#about")
    tab.close()


def test_text_of_inputs_without_a_radius_is_readable(browser: Any, digits: Path) -> None:
    ratio = """(selector) => {
        const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
          .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const card = document.querySelector('.card.lost');
        const pair = [getComputedStyle(card.querySelector(selector)).color, getComputedStyle(card).backgroundColor];
        const [low, high] = pair.map(light).sort((a, b) => a - b);
        return getComputedStyle(card).opacity * (high + 0.05) / (low + 0.05);
    }"""
    for scheme in ("light", "dark"):
        tab = Tab(browser, digits, color_scheme=scheme)
        tab.page.check("input[value=undecided]")
        assert all(tab.page.evaluate(ratio, selector) >= 4.5 for selector in (".badge", "dt", ".count"))
        tab.close()


def test_the_map_of_patches_and_the_parts_of_poisoning(browser: Any, folder: Path) -> None:
    runs = [Run.open(folder / "band"), Run.open(folder / "poisoned")]
    tab = Tab(browser, write_report(runs, folder / "two.html"))
    tab.slide("#side", 1)
    few = tab.text("#map-text")
    tab.slide("#side", 20)
    assert few != tab.text("#map-text")
    assert "A patch of 20 x 20 pixels could change the answer" in tab.text("#map-text")
    tab.page.select_option("#run", "1")
    assert tab.page.locator("#map-section").is_hidden()
    labels = tab.page.locator("#filters").inner_text()
    assert "wrong (" in labels
    assert "undecided (" in labels
    assert tab.page.locator("#histogram svg").count() == 1
    assert "buckets of the training set must change" in tab.text(".card >> nth=0")
    assert tab.verify() == "box good"
    tab.close()


@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}])
def test_dark_and_narrow_screens(browser: Any, digits: Path, options: dict[str, Any]) -> None:
    tab = Tab(browser, digits, **options)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    before = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.click("#theme")
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tab.close()


def test_names_of_several_runs_fit_a_narrow_screen(browser: Any, folder: Path) -> None:
    runs = [Run.open(folder / "gaussian"), Run.open(folder / "band"), Run.open(folder / "poisoned")]
    tab = Tab(browser, write_report(runs, folder / "several.html", views=0), viewport={"width": 380, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.close()


def test_controls_have_names_and_are_reached_by_keys(browser: Any, digits: Path) -> None:
    tab = Tab(browser, digits)
    nameless = """[...document.querySelectorAll('button, input, select, img, svg[role=img]')].filter((one) =>
        !(one.labels?.length || one.textContent.trim() || one.alt || one.getAttribute('aria-label'))).length"""
    assert tab.page.evaluate(nameless) == 0
    tab.page.focus("#radius")
    tab.page.keyboard.press("End")
    assert float(tab.page.input_value("#radius")) == pytest.approx(float(tab.page.get_attribute("#radius", "max")))
    tab.page.focus("#verify")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#verdict:not([hidden])")
    tab.close()


def test_runs_of_schema_1_are_shown_and_verified(browser: Any, tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results"
    runs = [Run.open(results / name) for name in ("sampled/fractional", "exact/band", "poisoning/clusters-1-7")]
    tab = Tab(browser, write_report(runs, tmp_path / "old.html", views=0))
    assert "good" in tab.verify()
    for name, inputs in (("fractional", "500"), ("band", "500"), ("clusters-1-7", "2,163")):
        assert f"{name}: {inputs} of {inputs} claims recomputed" in tab.text("#verdict")
    assert '"schema": 1' in tab.page.text_content("#manifest")
    tab.close()
