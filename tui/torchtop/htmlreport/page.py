"""The page around a report: its style, its head, and the pieces that all reports are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchtop import __version__
from torchtop.htmlreport.colours import stylesheet
from torchtop.htmlreport.markup import Content, Markup, joined, plain, tag
from torchtop.session.values import items

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Nothing is loaded and nothing runs, whatever the page holds."""

_STYLE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1240px;padding:20px 16px 48px;background:var(--back);
color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 2px;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:32px 0 10px}
h3{font-size:.95rem;margin:0}
p{margin:4px 0}
.sub,.note,figcaption p{color:var(--dim);overflow-wrap:anywhere}
.note,figcaption p{font-size:.85rem}
.card,figure,.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px}
.card{padding:12px 16px;margin:16px 0;border-left:5px solid var(--dim);overflow-wrap:anywhere}
.card.ok{border-left-color:var(--good)}
.card.note-level{border-left-color:var(--accent)}
.card.warn{border-left-color:var(--warn)}
.card.critical{border-left-color:var(--bad)}
.card ul{margin:6px 0;padding-left:20px}
.card .head{font-weight:650}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));gap:10px;
margin:16px 0}
.tile{padding:8px 12px}
.tile b{display:block;font-size:1.25rem;font-weight:650;font-variant-numeric:tabular-nums}
.tile span{color:var(--dim);font-size:.8rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:14px}
figure{margin:0;padding:12px 14px;min-width:0;break-inside:avoid}
figcaption{margin-bottom:6px}
svg.plot{display:block;width:100%;max-width:680px;height:auto}
svg.plot *{stroke-linejoin:round;stroke-linecap:butt}
svg.plot text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif!important;
font-variant-numeric:tabular-nums}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;list-style:none;margin:4px 0 0;padding:0;
font-size:.82rem;color:var(--dim)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--rule)}
th{color:var(--dim);font-weight:600;white-space:nowrap}
td:first-child{min-width:5em}
td:nth-child(2):not(.number){min-width:8em}
td.number,th.number{text-align:right;white-space:nowrap}
code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.88em;overflow-wrap:anywhere}
footer{margin-top:36px;color:var(--dim);font-size:.8rem}
@media print{body{max-width:none;padding:0}.plots{grid-template-columns:1fr 1fr}}
"""

_LEVELS = {"ok": "ok", "note": "note-level", "warn": "warn", "critical": "critical"}


def page(title: str, body: Iterable[Content]) -> str:
    """A whole document.

    Args:
        title: of the window.
        body: what stands in it; text is escaped.
    """
    head = joined(
        (
            tag("meta", charset="utf-8"),
            # http-equiv is no Python name.
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content=f"torchtop {__version__}"),
            tag("title", plain(title)),
            tag("style", Markup(stylesheet() + _STYLE)),
        )
    )
    told = tag("footer", f"Made by torchtop {__version__}. One file: it loads nothing.")
    whole = tag("html", tag("head", head), tag("body", tag("main", joined(body)), told), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def figure(title: str, drawn: Markup, note: str = "") -> Markup:
    """A plot with its title and a line about it."""
    caption = [tag("h3", title)]
    if note:
        caption.append(tag("p", note))
    return tag("figure", tag("figcaption", *caption), drawn)


def tiles(values: Iterable[tuple[str, str]]) -> Markup:
    """The few numbers that matter most, each with what it is."""
    told = (tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in values)
    return tag("div", *told, class_="tiles")


def verdict_card(verdict: Mapping[str, Any] | None, beside: str = "") -> Markup:
    """A verdict with its evidence and advice.

    Args:
        verdict: as in the summary; None where there is none.
        beside: what to say of it before its kind.
    """
    if not verdict:
        return tag("div", tag("p", "No verdict: too few steps were seen.", class_="head"),
                   class_="card")  # fmt: skip
    kind = plain(verdict.get("kind") or "no kind", 60)
    headline = plain(verdict.get("headline") or "", 500)
    parts = [tag("p", f"{beside}{kind}. {headline}".strip(), class_="head")]
    evidence = [tag("li", plain(text, 500)) for text in items(verdict, "evidence")]
    advice = [tag("li", plain(text, 500)) for text in items(verdict, "advice")]
    if evidence:
        parts.append(tag("ul", *evidence))
    if advice:
        parts += [tag("p", "What to try:"), tag("ul", *advice)]
    level = _LEVELS.get(str(verdict.get("severity")), "")
    return tag("div", *parts, class_=f"card {level}".strip())
