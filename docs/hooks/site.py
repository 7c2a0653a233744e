"""Hooks of the documentation site: its navigation, and the repository's own pages and pictures mounted in it.

A page of `docs/` that `SECTIONS` does not name is still shown, under "More"; one that it names and that does not exist is left
out. Files outside `docs/` that a page links to are mounted under `repository/`: a link reads the same in the repository and here.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
MOUNT = "repository"
SECTIONS = {
    "Start": ["index", "start", "which-smoothing", "reading-a-claim"],
    "How do I …": [
        "python",
        "own-model",
        "data",
        "tables",
        "own-training-loop",
        "training",
        "denoisers",
        "ensembles",
        "plan",
        "attacks",
        "poisoning",
        "goals",
        "backends",
        "many-machines",
        "fewer-votes",
        "report",
        "service",
        "reproduce",
        "command-line",
    ],
    "What a claim rests on": ["claims", "theorems", "run-folder", "seeds-and-replay", "forgeries"],
    "Measured": ["results", "benchmarks"],
    "Python": ["api/certify", "api/runs", "api/laws", "api/data-and-models", "api/training", "api/others"],
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: Any) -> Any:
    """Set the navigation from the pages that exist."""
    docs = Path(config.docs_dir)
    found = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    named = {name for names in SECTIONS.values() for name in names}
    sections = SECTIONS | {"More": sorted(found - named)}
    config.nav = [
        {title: [f"{name}.md" for name in names if name in found]}
        for title, names in sections.items()
        if set(names) & found
    ]
    ours = [f"{MOUNT}/{name}" for name in ("CONTRIBUTING.md", "CHANGELOG.md") if (ROOT / name).exists()]
    config.nav.append({"Working on Vauban": ours})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Mount what pages link to outside `docs/`, and what those pages link to."""
    waiting = ["CONTRIBUTING.md", "CHANGELOG.md", *(_source(file) for file in files if file.src_uri.endswith(".md"))]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, f"{MOUNT}/{path}", abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            waiting += _linked(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at where the site has their targets."""
    here = _source(page.file)

    def moved(link: re.Match[str]) -> str:
        target = _resolved(here, link[2])
        if target is None or not (ROOT / target).is_file():
            return link[0]
        there = posixpath.relpath(_place(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{link[1]}{there}{link[3] or ''}{link[4]}"

    return LINK.sub(moved, markdown)


def _linked(path: str) -> Iterator[str]:
    """The paths in the repository to which a page links."""
    for link in LINK.finditer((ROOT / path).read_text(encoding="utf-8")):
        if target := _resolved(path, link[2]):
            yield target


def _resolved(path: str, target: str) -> str | None:
    """The path in the repository of a link on the page at `path`; None for the address of another site."""
    if ":" in target:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _source(file: File) -> str:
    """Where a file of the site lies in the repository."""
    return file.src_uri.removeprefix(f"{MOUNT}/") if file.src_uri.startswith(f"{MOUNT}/") else f"docs/{file.src_uri}"


def _place(path: str) -> str:
    """Where a file of the repository lies in the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{MOUNT}/{path}"
