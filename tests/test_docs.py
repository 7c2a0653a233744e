"""Documentation that stays true: names, options and papers on its pages exist, and the site builds without a warning."""

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from vauban.cli import app
from vauban.laws import LAWS
from vauban.references import REFERENCES

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("results/**/README.md")),
]
ENTRY_POINTS = {"vauban.defenses", "vauban.environments", "vauban.smoothings"}  # groups that are no modules
NAME = re.compile(r"`(vauban(?:\.\w+)+)`|^::: (vauban(?:\.\w+)+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
COMMAND = re.compile(r"^(?:    )?(?:\$ |\w+=\S+ )?vauban +(\w.*?)(?: {2,}#.*)?$", re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def resolve(name: str) -> Any:
    """The module or attribute of a dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_name_of_the_library_on_a_page_exists(page: Path) -> None:
    for name in {first or second for first, second in NAME.findall(page.read_text())} - ENTRY_POINTS:
        resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_within_the_repository_leads_to_a_file(page: Path) -> None:
    """A folder will not do: the site has no page for it."""
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).is_file(), target


def commands(text: str) -> Iterator[list[str]]:
    """The words of every command line that begins with vauban; what follows a comment, a semicolon or a pipe is left out."""
    joined = text.replace("\\\n", " ")
    for line in COMMAND.findall(joined):
        lexer = shlex.shlex(re.split(r" #| > |; |\| ", line)[0], posix=True, punctuation_chars="")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            yield list(lexer)
        except ValueError:  # a quotation that goes on
            continue


@pytest.fixture(scope="module")
def ours() -> Any:
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_option_on_a_page_exists(page: Path, ours: Any) -> None:
    for words in commands(page.read_text()):
        command = ours
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if hasattr(command, "commands"):
            continue  # prose, or a word such as COMMAND
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.partition("=")[0].rstrip(",;.)") for word in words if re.match(r"--?[a-z]", word)}
        assert used <= {*known, "--help", "-h"}, f"vauban {command.name} {sorted(used - known)}"


def test_the_page_of_theorems_cites_the_papers_of_the_code() -> None:
    text = (ROOT / "docs/theorems.md").read_text()
    statements, papers = text.split("## Papers")
    listed = dict(re.findall(r"^- \[(\w+)\] (.*)$", papers, re.MULTILINE))
    assert listed == {key: REFERENCES[key] for key in listed}
    assert set(re.findall(r"\[([A-Z]\w+\d{4})\]", statements)) == set(listed)


def test_the_page_of_theorems_names_every_law() -> None:
    text = (ROOT / "docs/theorems.md").read_text()
    ours = [law for forms in LAWS.values() for law in forms if law.__module__.startswith("vauban.")]
    assert len(ours) > 10
    for law in ours:
        assert f"`{law.__module__}.{law.__name__}`" in text


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/start.md", "docs/python.md"])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        exec(compile(code, page, "exec"), {})


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_the_navigation_leaves_out_what_is_missing_and_shows_what_is_new(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/hooks/site.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    for name in ("index", "plan", "brand-new"):
        (tmp_path / f"{name}.md").write_text(f"# {name}")
    nav = hooks.on_config(SimpleNamespace(docs_dir=str(tmp_path), nav=None)).nav
    assert nav[:-1] == [{"Start": ["index.md"]}, {"How do I …": ["plan.md"]}, {"More": ["brand-new.md"]}]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/index.html").is_file()
