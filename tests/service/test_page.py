"""The page in Chromium: a digit is drawn, its radius grows, its record verifies, and a further stroke breaks it."""

import json
from pathlib import Path
from typing import Any

import pytest
from service_world import desk as small_desk

from vauban.cli.serve import make_desk
from vauban.client import save_files
from vauban.service.running import running
from vauban.service.settings import Limits

CHROMIUM = Path("/usr/bin/chromium")
TOKEN = "a token for tests"


def stroke(page: Any, *points: tuple[float, float]) -> None:
    """Draw along points, in pixels of the picture."""
    box = page.locator("#pad").bounding_box()
    assert box is not None
    places = [(box["x"] + box["width"] * x / 28, box["y"] + box["height"] * y / 28) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=6)
    page.mouse.up()


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium at /usr/bin/chromium")
def test_a_digit_is_drawn_certified_and_broken(tmp_path: Path) -> None:
    driver = pytest.importorskip("playwright.sync_api")
    desk = make_desk(
        smoothing="gaussian:sigma=0.5", model=None, weights=None, data=None, input=None, input_range="0,1",
        runs=tmp_path / "served", on=None, limits=Limits(seconds=4.0), rows=None, block=None, precision="fp32", backend=None,
        device="cpu",
    )  # fmt: skip
    with running(desk, TOKEN) as url, driver.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        wrong: list[str] = []
        page.on("pageerror", lambda problem: wrong.append(str(problem)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.goto(url)
        page.wait_for_selector("#token-form:not([hidden])")
        assert page.locator("#problem").inner_text() == ""
        assert not page.locator("#pad").is_visible()
        page.fill("#token", "another")
        page.click("#token-form button")
        driver.expect(page.locator("#problem")).to_contain_text("not the token of this service")
        page.fill("#token", TOKEN)
        page.click("#token-form button")
        page.wait_for_selector("#token-form", state="hidden")
        assert "drop a picture" in page.locator("#drawing").inner_text()
        page.click("#certify")
        driver.expect(page.locator("#problem")).to_contain_text("The picture is empty: draw")
        assert page.locator("#count").inner_text() == "No votes yet."
        stroke(page, (8, 7), (20, 7), (18, 12), (15, 17), (13, 22))
        page.click("#certify")
        page.wait_for_selector("#breaking:not([hidden])", timeout=120_000)
        assert page.locator("#answer b").first.inner_text() == "7"
        assert page.locator("#views figure").count() == 8
        assert "not counted" in page.locator("#views-text").inner_text()
        assert "anytime" not in page.locator("#claim").inner_text()
        driver.expect(page.locator("#verdict")).to_contain_text("Still 7", timeout=60_000)
        with page.expect_download() as download:
            page.click("#record")
        run = save_files(tmp_path / "run", json.loads(Path(download.value.path()).read_text())["files"])
        assert run.verify().inputs == 1
        radius = float(run.certificates().radius[0])
        assert page.locator("#answer b").nth(1).inner_text() == f"{radius:.9f}"[:6]
        stroke(page, (6, 14), (20, 14), (20, 22), (7, 22))
        driver.expect(page.locator("#verdict")).to_contain_text("Broken", timeout=60_000)
        far = float(page.locator("#distance").inner_text().split(": ")[1].split(";")[0])
        assert far > radius
        page.click("#restore")
        driver.expect(page.locator("#verdict")).to_contain_text("Still 7", timeout=60_000)
        assert not wrong
        browser.close()


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium at /usr/bin/chromium")
def test_a_row_of_a_table_has_no_canvas_and_no_views(tmp_path: Path) -> None:
    driver = pytest.importorskip("playwright.sync_api")
    with (
        running(small_desk(tmp_path, shape=(4,), limits=Limits(seconds=3.0))) as url,
        driver.sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 380, "height": 900})
        page.goto(url)
        page.wait_for_selector("#values")
        assert not page.locator("#pad").is_visible()
        assert not page.locator("#clear").is_visible()
        page.click("#certify")
        page.wait_for_selector("#record:not([hidden])", timeout=120_000)
        assert page.locator("#views figure").count() == 0
        assert not page.locator("#views-text").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 380
        browser.close()
