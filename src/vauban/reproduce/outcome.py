"""What an entry gave: published numbers beside ours, pictures, verified runs and seconds; as JSON and as a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vauban import __version__
from vauban.errors import Incomplete
from vauban.files import replace_file, write_json
from vauban.reproduce.comparing import Compared, headers, table_rows
from vauban.reproduce.entry import Entry

RESULTS, PAGE = "results.json", "README.md"


@dataclass
class Outcome:
    """What an entry gave so far. `missing`: names of runs that are not finished; `seconds`: of every step that was run;
    `options`: of the command, as far as all results depend on them; `commands`: those that make what there is; `learned`: areas
    of agents; `chosen`: how the run on test inputs was chosen, in words; `replaced`: what the command's options replace in the
    entry, in words."""

    entry: Entry
    out: Path
    rows: list[Compared] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    quick: bool = False
    options: str = ""
    commands: list[str] = field(default_factory=list)
    learned: list[dict[str, Any]] = field(default_factory=list)
    chosen: str = ""
    replaced: str = ""

    @property
    def finished(self) -> bool:
        """Whether nothing that was asked for is left to do."""
        return not self.missing

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        compared = [{**asdict(row), "difference": row.difference} for row in self.rows]
        return {
            "entry": self.entry.name,
            "title": self.entry.title,
            "source": self.entry.source,
            "vauban": __version__,
            "quick": self.quick,
            "options": self.options,
            "commands": self.commands,
            "finished": self.finished,
            "compared": compared,
            "verified": self.verified,
            "missing": self.missing,
            "pictures": [path.name for path in self.pictures],
            "seconds": self.seconds,
            **({"learned": self.learned} if self.learned else {}),
        }


class Unfinished(Incomplete):
    """A budget was spent before everything was done; `outcome` is what there is."""

    def __init__(self, message: str, outcome: Outcome):
        super().__init__(message)
        self.outcome = outcome


def write(outcome: Outcome) -> None:
    """Write the results as JSON, and as a page."""
    write_json(outcome.out / RESULTS, outcome.to_json())
    replace_file(outcome.out / PAGE, page(outcome).encode())


def page(outcome: Outcome) -> str:
    """The results as Markdown: the table of published and own numbers, pictures, runs and seconds."""
    entry = outcome.entry
    lines = [f"# {entry.title}", "", f"{entry.source}. Made by", ""]
    lines += [*(f"    {command}" for command in outcome.commands), ""]
    if outcome.quick:
        fewer = "steps and seeds" if entry.kind == "rl" else "epochs, inputs and votes"
        lines += [f"The quick version: fewer {fewer} than published; it shows that the experiment runs.", ""]
    lines += [outcome.replaced, ""] if outcome.replaced else []
    lines += [entry.note, ""] if entry.note else []
    if outcome.rows:
        lines += ["| " + " | ".join([*headers(), "source"]) + " |", "| --- " * (len(headers()) + 1) + "|"]
        done = [row for row in outcome.rows if row.done]
        shown = zip(table_rows(done), done, strict=True)
        lines += ["| " + " | ".join([*cells, row.source]) + " |" for cells, row in shown]
        lines += ["", _explained(outcome), ""] if any(row.error for row in done) else [""]
        left = len(outcome.rows) - len(done)
        lines += [f"{left} more published numbers belong to runs that are not made yet.", ""] if left else []
    if outcome.learned:
        lines += ["| " + " | ".join(LEARNED) + " |", "| --- " * len(LEARNED) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in learned_rows(outcome.learned)]
        lines += ["", _LEARNED_EXPLAINED, ""]
    lines += [f"![{path.stem}]({path.name})" for path in outcome.pictures if path.suffix == ".png"]
    if outcome.verified:
        lines += ["", "## Runs", "", "Each was verified from its votes, without the model:", ""]
        lines += [f"- `{text}`" for text in outcome.verified]
    if outcome.missing:
        lines += ["", f"Not finished: {', '.join(outcome.missing)}."]
    if outcome.seconds:
        lines += ["", f"## Time: {sum(outcome.seconds.values()) / 60:.1f} minutes", ""]
        lines += [f"- {name}: {seconds:.0f} s" for name, seconds in outcome.seconds.items()]
    return "\n".join([*lines, ""])


LEARNED = ("point", "arm", "seeds", "steps", "area", "95 %", "IQM", "95 %", "at the end", "above the first", "chosen")
_LEARNED_EXPLAINED = (
    "Area: the mean height of a curve over the steps that all arms of the point reached, mean over seeds; IQM: the mean of the "
    "middle half of the seeds. Intervals: stratified bootstrap over seeds; of few seeds they are rough and tend to be too short. "
    "What was chosen was chosen by the area of other seeds than those reported."
)


def learned_rows(learned: list[dict[str, Any]]) -> list[list[str]]:
    """The areas of agents as cells under `LEARNED`."""
    return [
        [
            row["point"], row["arm"], str(row["seeds"]), "" if row["steps"] is None else f"{row['steps']:,}",
            f"{row['area']:.3f}", _interval(*row["area_interval"]), f"{row['iqm']:.3f}", _interval(*row["iqm_interval"]),
            "" if row["last"] is None else f"{row['last']:.3f}",
            "" if row["gain"] is None else f"{row['gain'][0]:+.3f} {_interval(*row['gain'][1:])}".strip(),
            row["chosen"].get("label", ""),
        ]
        for row in learned
    ]  # fmt: skip


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"({low:.3f}, {high:.3f})"


def _explained(outcome: Outcome) -> str:
    several = any(row.seeds > 1 for row in outcome.rows)
    spread = "over trainings" if several else "over inputs; that of another training is not part of it"
    best = (
        "Where several runs fit a published number, the best one is shown, as in the paper."
        if outcome.entry.grid
        else ""
    )
    return " ".join(text for text in (f"± is one standard error {spread}.", best, outcome.chosen) if text)
