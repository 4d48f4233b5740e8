# SPDX-License-Identifier: Apache-2.0
"""Tables of paired measurements: medians with their spread, ratios round by round, aims, JSON, and charts."""
import html
import json
import statistics
from dataclasses import dataclass, field

COLOURS = ("#3b6ea5", "#c8553d", "#8a8d91", "#5f8f5a", "#b08a3e", "#7a5c99")
BAR, GAP, LABEL, WIDTH = 14, 10, 300, 520


class Hole(Exception):
    """A table lacks what it promises: something was not measured."""


def number(value):
    """Three digits that count."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}" if size >= 0.1 or value == 0 else f"{value:.3g}"


def shown(values, unit=""):
    """The median, and from the least to the most."""
    spread = f" ({number(min(values))}-{number(max(values))})" if len(values) > 1 else ""
    return f"{number(statistics.median(values))}{' ' + unit if unit else ''}{spread}"


@dataclass
class Row:
    """One thing that was measured on several sides, {side: [value of each round]}. The ratio of a round is `ours` to `other`, which needs
    `other` measured in each round too. `aim` is what the median of the ratios should not exceed, `bound` what our own median should not."""
    name: str
    unit: str
    ours: str
    other: str | None
    aim: float | None = None
    bound: float | None = None
    sides: dict = field(default_factory=dict)

    def add(self, side, value):
        self.sides.setdefault(side, []).append(value)
        return self

    @property
    def ratios(self):
        """Of each round; none where there is no other side."""
        if self.other is None:
            return []
        ours, other = self.sides.get(self.ours, []), self.sides.get(self.other, [])
        if not ours or len(ours) != len(other):
            raise Hole(f"{self.name}: {len(ours)} rounds of {self.ours}, {len(other)} of {self.other}")
        return [one / two for one, two in zip(ours, other, strict=True)]

    @property
    def met(self):
        """Whether the aim is met; None without one."""
        if self.bound is not None:
            return statistics.median(self.sides[self.ours]) <= self.bound
        return None if self.aim is None else statistics.median(self.ratios) <= self.aim

    def aim_text(self):
        if self.met is None:
            return ""
        limit = number(self.aim) if self.bound is None else f"{number(self.bound)} {self.unit}".rstrip()
        return f"at most {limit}: {'met' if self.met else 'missed'}"


@dataclass
class Table:
    """`ours` and `other` are the sides of the ratio where a row says nothing else."""
    title: str
    unit: str
    ours: str
    other: str | None
    rows: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def row(self, name, **settings):
        """The row of this name, made when it is asked for first."""
        for row in self.rows:
            if row.name == name:
                return row
        self.rows.append(Row(name, **{"unit": self.unit, "ours": self.ours, "other": self.other, **settings}))
        return self.rows[-1]

    @property
    def sides(self):
        return list(dict.fromkeys(side for row in self.rows for side in row.sides))

    def check(self):
        """Raises Hole unless every row has what it promises."""
        if not self.rows:
            raise Hole(f"{self.title}: nothing was measured")
        for row in self.rows:
            if row.ours not in row.sides:
                raise Hole(f"{row.name}: {row.ours} was not measured")
            _ = row.ratios

    def markdown(self):
        self.check()
        compared = any(row.other for row in self.rows)
        aimed = any(row.met is not None for row in self.rows)
        head = ["", *self.sides, *([f"{self.ours} / {self.other or 'other'}"] if compared else []), *(["aim"] if aimed else [])]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for row in self.rows:
            cells = [shown(row.sides[side], row.unit) if side in row.sides else "" for side in self.sides]
            if compared:
                against = f" of {row.other}" if row.other != self.other else ""
                cells.append(shown(row.ratios) + against if row.other else "")
            lines.append(f"| {' | '.join([row.name, *cells, *([row.aim_text()] if aimed else [])])} |")
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def json(self):
        rows = [{"name": row.name, "unit": row.unit, "sides": row.sides, "ours": row.ours, "other": row.other, "ratios": row.ratios, "aim": row.aim,
                 "bound": row.bound, "met": row.met} for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}

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
                parts.append(f'<text x="{LABEL + width + 6:.1f}" y="{y + BAR - 1}">{html.escape(side)}: {html.escape(shown(values, row.unit))}</text>')
                y += BAR
            y += GAP
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 330}" height="{y}" font-family="sans-serif" font-size="11">'
                f'<rect width="100%" height="100%" fill="white"/><text x="0" y="16" font-size="14">{html.escape(self.title)}</text>')
        return head + "".join(parts) + "</svg>\n"


def write(name, table, said, directory):
    """NAME.svg and NAME.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.svg").write_text(table.svg())
    (directory / f"{name}.json").write_text(json.dumps({"measured": said, **table.json()}, indent=1) + "\n")


def section(name, table, said, charts):
    """For people."""
    return f"{said}\n\n{table.markdown()}\n\n![{table.title}]({charts}{name}.svg)\n"
