"""The results as a picture: a bar for each goal, on a scale where 1 is the goal, and one for each of the
others that no goal names, on a scale where 1 is as fast as they are. An SVG without any library, light enough for the documentation."""

import math
from xml.sax.saxutils import escape

from .figures import short

WHAT, ENGINE, BARS, NUMBERS, STEP, MARGIN = 425, 80, 300, 410, 17, 16
LEFT = MARGIN + WHAT + ENGINE
WIDTH = LEFT + BARS + NUMBERS + MARGIN
GOOD, BAD, GREY, INK = "#2a7f62", "#b5482f", "#d5d5d5", "#222222"


class Scale:
    """A logarithmic one, with what lies outside drawn at its ends."""

    def __init__(self, marks):
        self.marks, self._low, self._high = marks, math.log10(marks[0]), math.log10(marks[-1])

    def place(self, value):
        inside = min(self._high, max(self._low, math.log10(max(value, 1e-9))))
        return LEFT + BARS * (inside - self._low) / (self._high - self._low)


def text(x, y, words, anchor="start", size=11, color=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
            f'fill="{color}">{escape(words)}</text>')


def with_unit(value, unit):
    return short(value) + (unit if unit.startswith("/") else f" {unit}")


def cut(words, longest):
    return words if len(words) <= longest else words[:longest - 1] + "…"


def label_of(line):
    return line.what.replace("`", ""), line.engine


def goal_bars(line):
    """For each goal: the words on both sides, and how far it is reached; 1 is exactly."""
    for goal in line.goals:
        value, _ = line.verdict(goal)
        if not value:
            yield label_of(line), None, "not measured"
            continue
        ours = with_unit(line.ours.median, line.ours.unit)
        told = f"{ours}, {goal.words(line.ours.unit)} wanted"
        if goal.against:
            told = f"{ours}, {value:.2f} of {goal.against} ({goal.words('')} wanted)"
        yield label_of(line), (value / goal.bound if goal.at_least else goal.bound / value), told


def peer_bars(line):
    """For each of the others that no goal names: how many times as fast as it we are."""
    named = {goal.against for goal in line.goals}
    for other in line.others:
        ratio = line.ratio(other)
        if ratio is None or other.name in named:
            continue
        times = ratio if line.ours.unit.startswith("/") else 1 / ratio
        told = f"{other.name}: {with_unit(other.median, other.unit)}, we {times:.2f} times as fast"
        yield label_of(line), times, told


def panel(y, title, scale, bars):
    """Title, scale and bars from this height on; returns them with the height where they end."""
    parts = [text(MARGIN, y + 14, title, size=13, weight="bold")]
    top, bottom = y + 42, y + 42 + STEP * len(bars)
    for mark in scale.marks:
        x, color = scale.place(mark), INK if mark == 1 else GREY
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4}" y2="{bottom}" stroke="{color}"/>')
        parts.append(text(x, top - 8, f"{mark:g}×", "middle", 10))
    before = None
    for n, (label, times, told) in enumerate(bars):
        base = top + STEP * n
        if label != before:
            parts.append(text(MARGIN, base + 12, cut(label[0], 72)))
            parts.append(text(MARGIN + WHAT, base + 12, label[1]))
        before = label
        if times is not None:
            low, high = sorted((scale.place(1), scale.place(times)))
            parts.append(f'<rect x="{low:.1f}" y="{base + 3}" width="{max(1.5, high - low):.1f}" height="{STEP - 6}" '
                         f'fill="{GOOD if times >= 1 else BAD}"/>')
        parts.append(text(LEFT + BARS + 10, base + 12, cut(told, 66)))
    return parts, bottom + 18


def svg(lines, about):
    goals = [bar for line in lines for bar in goal_bars(line)]
    peers = [bar for line in lines for bar in peer_bars(line)]
    title = f"taskqueue, measured {about['made_on']}{', but a quick look' if about['quick'] else ''}"
    parts, y = [text(MARGIN, 26, title, size=16, weight="bold")], 40
    if goals:
        more, y = panel(y, "Goals: 1 is reached, right of it is better", Scale((0.1, 0.3, 1, 3, 10)), goals)
        parts += more
    if peers:
        more, y = panel(y, "Others: how many times as fast we are", Scale((0.1, 1, 10, 100, 1000)), peers)
        parts += more
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{y}" fill="white"/>', *parts, "</svg>", "",
    ])
