# SPDX-License-Identifier: Apache-2.0
"""Tables of paired measurements: medians with their spread, ratios, JSON, and charts."""
import html
import json
import statistics
from dataclasses import dataclass, field

COLOURS = ("#3b6ea5", "#c8553d", "#8a8d91", "#5f8f5a", "#b08a3e", "#7a5c99")
BAR, GAP, LABEL, WIDTH = 14, 10, 300, 520


def shown(values, unit):
    middle = statistics.median(values)
    digits = 0 if middle >= 100 else 2 if middle >= 1 else 4
    spread = f" ({min(values):.{digits}f}-{max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{middle:.{digits}f} {unit}{spread}"


@dataclass
class Row:
    """One thing that was measured on several sides, {side: [value of each round]}."""
    name: str
    sides: dict


@dataclass
class Table:
    """`ours` and `other` are the sides of the ratio, `aim` is what it should not exceed: {name of a row: number}."""
    title: str
    unit: str
    ours: str
    other: str
    aim: dict = field(default_factory=dict)
    rows: list = field(default_factory=list)

    def add(self, name, side, value):
        row = next((row for row in self.rows if row.name == name), None)
        if row is None:
            row = Row(name, {})
            self.rows.append(row)
        row.sides.setdefault(side, []).append(value)

    @property
    def sides(self):
        return list(dict.fromkeys(side for row in self.rows for side in row.sides))

    def ratio(self, row):
        """Of the medians; None when a side is missing."""
        if self.ours not in row.sides or self.other not in row.sides:
            return None
        return statistics.median(row.sides[self.ours]) / statistics.median(row.sides[self.other])

    def markdown(self):
        lines = [f"### {self.title}", "", f"| | {' | '.join(self.sides)} | {self.ours} / {self.other} | aim |", "|---" * (len(self.sides) + 3) + "|"]
        for row in self.rows:
            cells = [shown(row.sides[side], self.unit) if side in row.sides else "" for side in self.sides]
            ratio, aim = self.ratio(row), self.aim.get(row.name)
            told = "" if ratio is None else f"{ratio:.2f}" + (" OVER" if aim is not None and ratio > aim else "")
            lines.append(f"| {row.name} | {' | '.join(cells)} | {told} | {'' if aim is None else aim} |")
        return "\n".join(lines)

    def json(self):
        rows = [{"name": row.name, "sides": row.sides, "ratio": self.ratio(row), "aim": self.aim.get(row.name)} for row in self.rows]
        return {"title": self.title, "unit": self.unit, "ours": self.ours, "other": self.other, "rows": rows}

    def svg(self):
        """Bars of the medians, from zero; the longest of a row fills the width, so that rows of other magnitudes can be read."""
        parts, y = [], 30
        for row in self.rows:
            longest = max(statistics.median(values) for values in row.sides.values()) or 1
            parts.append(f'<text x="0" y="{y + BAR}" font-weight="bold">{html.escape(row.name)}</text>')
            for side, values in row.sides.items():
                width = WIDTH * statistics.median(values) / longest
                colour = COLOURS[self.sides.index(side) % len(COLOURS)]
                parts.append(f'<rect x="{LABEL}" y="{y + 2}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>')
                parts.append(f'<text x="{LABEL + width + 6:.1f}" y="{y + BAR - 1}">{html.escape(side)}: {html.escape(shown(values, self.unit))}</text>')
                y += BAR
            y += GAP
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 330}" height="{y}" font-family="sans-serif" font-size="11">'
                f'<rect width="100%" height="100%" fill="white"/><text x="0" y="16" font-size="14">{html.escape(self.title)}</text>')
        return head + "".join(parts) + "</svg>\n"


def write(tables, directory):
    """Each table as NAME.svg, all of them as figures.json; returns the text for people."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        (directory / f"{name}.svg").write_text(table.svg())
    (directory / "figures.json").write_text(json.dumps({name: table.json() for name, table in tables.items()}, indent=1) + "\n")
    return "\n\n".join(table.markdown() for table in tables.values())
