"""The table "published against Vauban": it is made of stored results alone, and the pages that show it are current."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput
from vauban.reproduce.entry import find, shipped
from vauban.reproduce.ledger import (
    HEADLINES,
    NOT_MADE,
    SECTIONS,
    lines_of,
    link_from,
    results_of,
    short_lines,
    table,
    written,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "reproduce"
PAGES = [
    page
    for page in [ROOT / "README.md", ROOT / "results/README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if "<!-- published: " in page.read_text(encoding="utf-8") and page.name != "reproduce.md"
]


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_pages_show_the_stored_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    again = written(text, RESULTS, link_from(page, RESULTS))
    assert text == again, "vauban reproduce --table PAGE --out results/reproduce writes it anew"


def test_results_have_their_page() -> None:
    assert {page.relative_to(ROOT).as_posix() for page in PAGES} >= {"results/README.md", "docs/results.md"}


def test_every_entry_has_one_place_and_lines() -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(shipped())
    for entry in shipped().values():
        lines, left = lines_of(entry, None)
        assert lines
        assert left >= 0
        assert all(line.ours == NOT_MADE for line in lines)


def test_a_number_that_is_made_stands_beside_the_published_one(tmp_path: Path) -> None:
    entry = find("row-mnist")
    rows = [
        {"source": "s", "what": "accuracy", "at": "", "published": y, "ours": None, "error": None, "published_error": None,
         "run": "", "x": x, "axis": one.over, "quantity": one.what, "done": False, "part": one.part}
        for one in entry.published for x, y in zip(one.x, one.y, strict=True)
    ]  # fmt: skip
    rows[1] |= {"ours": 97.0, "error": 0.2, "done": True}
    (tmp_path / entry.name).mkdir()
    stored = {"quick": False, "compared": rows, "pictures": []}
    (tmp_path / entry.name / "results.json").write_text(json.dumps(stored))
    made = table(tmp_path, "made", "there/")
    assert "| [row-mnist](there/row-mnist/README.md) |" in made
    assert "97.00 % ± 0.2" in made
    assert NOT_MADE not in made
    (tmp_path / entry.name / "results.json").write_text(json.dumps(stored | {"quick": True}))
    assert results_of(entry, tmp_path) is None
    (tmp_path / entry.name / "results.json").write_text(json.dumps(stored | {"compared": rows[1:]}))
    with pytest.raises(BadInput, match="again, which keeps its runs"):
        results_of(entry, tmp_path)


def test_an_entry_without_results_links_to_the_page_that_has_a_part_of_it(tmp_path: Path) -> None:
    text = table(tmp_path, "all", "../results/reproduce/")
    assert f"{NOT_MADE}, in part: [attacks](../results/attacks/README.md) |" in text
    for entry in shipped().values():
        assert not entry.elsewhere or (RESULTS.parent / entry.elsewhere).is_file()
    assert any(entry.elsewhere for entry in shipped().values())


def test_the_short_table_has_the_first_and_the_last_number_of_each_headline(tmp_path: Path) -> None:
    entry = find("splitting-cifar10-lattice")
    found = results_of(entry, RESULTS)
    assert found is not None
    [line] = short_lines(entry, found)
    assert line.what == "certified accuracy (DSSN, stability training), radius 0.5 … 4"
    assert line.published == "71.23 % … 36.46 %"
    text = table(RESULTS, "short", "r/")
    assert [name for name in HEADLINES if f"[{name}](r/{name}/README.md)" in text] == list(HEADLINES)
    assert f"| {line.ours} | {line.difference} |" in text
    assert "not made yet" not in text
    assert table(tmp_path, "short").count("\n|") == 2  # its head alone


def test_the_command_writes_the_table_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- published: made -->\nold\n<!-- published: end -->\nafter\n")
    shutil.copytree(RESULTS / "laplace-rops", tmp_path / "results" / "laplace-rops")
    done = CliRunner().invoke(app, ["reproduce", "--table", str(page), "--out", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "[laplace-rops](results/laplace-rops/README.md)" in text
    assert "2.0403" in text
    with pytest.raises(BadInput, match="no place for the table"):
        written("nothing", RESULTS, "")
