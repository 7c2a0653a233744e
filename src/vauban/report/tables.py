"""Certificates as CSV, pandas and HTML tables."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vauban.errors import MissingExtra
from vauban.report.numbers import radius_text
from vauban.report.summary import headers, nice_radii, rows

if TYPE_CHECKING:
    from vauban.certificates import Certificates, Claims


def data_frame(certs: Claims, names: Sequence[str] | None = None) -> Any:
    """A pandas table: index, truth, label, radius, abstained, counts per class; file names where there are any."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "pandas", "a table") from None
    columns: dict[str, Any] = {"index": certs.index}
    if names is not None:
        columns["name"] = list(names)
    if certs.truth is not None:
        columns["truth"] = certs.truth
    columns |= {"label": certs.label, "radius": certs.radius, "abstained": certs.abstained}
    if (look := getattr(certs, "look", None)) is not None:
        columns["look"] = look
    columns |= {f"count_{c}": certs.counts[:, c] for c in range(certs.counts.shape[1])}
    return pandas.DataFrame(columns)


def certificates_html(certs: Certificates) -> str:
    """Certificates as an HTML table: their summary, and the claim in words."""
    title = f"{certs.law.spec}, {certs.votes_per_input:,.0f} votes per input"
    if certs.truth is None:
        decided = int((~certs.abstained).sum())
        return claims_html(certs, title, ["", ""], [["inputs", f"{len(certs):,}"], ["decided", f"{decided:,}"]])
    summary = certs.summary(nice_radii(certs))
    return claims_html(certs, title, headers(summary), rows(summary))


def claims_html(certs: Claims, title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A title, a table, the claim in words and the notes on it."""
    said = "".join(f"<p>{html.escape(text)}</p>" for text in (certs.claim, *(f"Note: {note}" for note in certs.notes)))
    return f"<div><b>{html.escape(title)}</b>{_table(head, lines)}{said}</div>"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def csv_text(certs: Claims, columns: Sequence[str]) -> str:
    """Claims as CSV text: radii rounded down, empty where abstained; truth empty where it is not known, look likewise."""
    look = getattr(certs, "look", None)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for i, number in enumerate(certs.index):
        abstained = bool(certs.abstained[i])
        row = {
            "index": number,
            "label": certs.label[i],
            "radius": "" if abstained else radius_text(float(certs.radius[i]), certs.threat),
            "abstained": "true" if abstained else "false",
            "truth": "" if certs.truth is None else certs.truth[i],
            "look": "" if abstained or look is None else look[i],
        }
        writer.writerow([row[column] for column in columns])
    return out.getvalue()
