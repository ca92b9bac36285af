"""Draw SVG pictures in a light and a dark theme. This module knows no content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
LINE = 19
"""Pixels from line to line in a box."""
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Theme:
    """The colours of one theme. All texts have a contrast of at least 4.5 to the background."""

    name: str
    background: str
    border: str
    text: str
    muted: str
    green: str
    red: str
    blue: str
    purple: str
    green_fill: str
    red_fill: str
    blue_fill: str
    purple_fill: str
    grey_fill: str


LIGHT = Theme(
    "light", "#ffffff", "#8c959f", "#1f2328", "#59636e", "#1a7f37", "#cf222e", "#0550ae", "#8250df",
    "#dafbe1", "#ffebe9", "#ddf4ff", "#fbefff", "#eaeef2",
)  # fmt: skip
DARK = Theme(
    "dark", "#0d1117", "#6e7681", "#e6edf3", "#9198a1", "#3fb950", "#ff7b72", "#79c0ff", "#d2a8ff",
    "#12361f", "#4a1a1d", "#0f2d4a", "#33234d", "#21262d",
)  # fmt: skip
THEMES = (LIGHT, DARK)


class Drawing:
    """One picture in one theme."""

    def __init__(self, width: int, height: int, theme: Theme, title: str) -> None:
        self.width = width
        self.height = height
        self.theme = theme
        self._title = title
        self._parts: list[str] = []

    def add(self, markup: str) -> None:
        """Add markup."""
        self._parts.append(markup)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str | None = None,
        radius: float = 4,
        dashed: bool = False,
    ) -> None:
        """Add a rectangle."""
        line = f' stroke="{stroke}" stroke-width="1.5"' if stroke else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.add(f'<rect {place} rx="{radius:g}" fill="{fill}"{line}{dash}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: str | None = None,
        size: int = 14,
        bold: bool = False,
        anchor: str = "start",
        mono: bool = False,
    ) -> None:
        """Add a line of text, whose baseline is at y."""
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if mono else ""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.add(
            f'<text x="{x:g}" y="{y:g}" fill="{colour or self.theme.text}" font-size="{size}"{weight}{family}{place}>'
            f"{escape(text)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        lines: Sequence[str],
        *,
        fill: str,
        stroke: str,
        bold: bool = True,
        height: float | None = None,
    ) -> None:
        """Add a box with centred lines, the first of them bold unless `bold` is false."""
        least = len(lines) * LINE + 15
        self.rect(x, y, width, height or least, fill=fill, stroke=stroke, radius=6)
        top = y + ((height or least) - least) / 2
        for number, line in enumerate(lines):
            self.text(
                x + width / 2, top + 21 + number * LINE, line, bold=bold and number == 0, anchor="middle",
                size=13 if bold and number else 14,
            )  # fmt: skip

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, colour: str, dashed: bool = False, arrow: bool = False
    ) -> None:
        """Add a line, with an arrowhead at its end if wanted."""
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self.add(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="{colour}" stroke-width="1.5" fill="none"{dash}/>')
        if arrow:
            self._head(x1, y1, x2, y2, colour)

    def _head(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        left = (x2 - 9 * dx - 4.5 * dy, y2 - 9 * dy + 4.5 * dx)
        right = (x2 - 9 * dx + 4.5 * dy, y2 - 9 * dy - 4.5 * dx)
        points = f"{x2:.1f},{y2:.1f} {left[0]:.1f},{left[1]:.1f} {right[0]:.1f},{right[1]:.1f}"
        self.add(f'<polygon points="{points}" fill="{colour}"/>')

    def svg(self) -> str:
        """Return the picture."""
        size = f'width="{self.width}" height="{self.height}"'
        box = f'viewBox="0 0 {self.width} {self.height}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{SANS}">',
            f"<title>{escape(self._title)}</title>",
            f'<rect {size} rx="8" fill="{self.theme.background}"/>',
            *self._parts,
            "</svg>\n",
        ])  # fmt: skip
