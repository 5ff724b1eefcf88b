"""The results as a picture: a bar for each ratio to a limit or a peer, on a scale where 1 is as fast as them. An SVG without
any library, light enough for the documentation."""

import math
from xml.sax.saxutils import escape

from .figures import short

LABEL, BARS, NUMBERS, STEP, TOP = 470, 420, 150, 18, 56
# From a hundredth to a hundred times.
LEAST, MOST = 0.01, 100
OURS_WINS, OURS_LOSES, GOAL = "#2a7f62", "#b5482f", "#333333"


def place(ratio):
    """Where a ratio lies on the logarithmic scale."""
    inside = min(MOST, max(LEAST, ratio))
    return LABEL + BARS * (math.log10(inside) - math.log10(LEAST)) / (math.log10(MOST) - math.log10(LEAST))


def speed(line, other):
    """How many times as fast as the other we are, whichever way the unit counts."""
    ratio = line.ratio(other)
    if ratio is None:
        return None
    return ratio if line.ours.unit.startswith("/") else 1 / ratio


def goal_speed(line, other):
    for goal in line.goals:
        if goal.against == other.name:
            return goal.bound if goal.at_least else 1 / goal.bound
    return None


def bar(y, label, times, goal, numbers):
    left, right = sorted((place(1), place(times)))
    color = OURS_WINS if times >= (goal or 1) else OURS_LOSES
    parts = [
        f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{left:.1f}" y="{y + 2}" width="{max(1, right - left):.1f}" height="{STEP - 5}" fill="{color}"/>',
        f'<text x="{LABEL + BARS + 8}" y="{y + 12}">{escape(numbers)}</text>',
    ]
    if goal:
        parts.append(f'<line x1="{place(goal):.1f}" x2="{place(goal):.1f}" y1="{y}" y2="{y + STEP - 1}" '
                     f'stroke="{GOAL}" stroke-width="2"/>')
    return parts


def svg(lines, about):
    bars, y = [], TOP
    for line in lines:
        for other in line.others:
            times = speed(line, other)
            if times is None:
                continue
            label = f"{line.what}, {line.engine}: {other.name}"
            unit = line.ours.unit if line.ours.unit.startswith("/") else f" {line.ours.unit}"
            numbers = f"{times:.2f}× ({short(line.ours.median)}{unit})"
            bars += bar(y, label if len(label) < 78 else label[:77] + "…", times, goal_speed(line, other), numbers)
            y += STEP
    width, height = LABEL + BARS + NUMBERS, y + 12
    scale = []
    for mark in (0.01, 0.1, 1, 10, 100):
        x = place(mark)
        scale.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{y}" stroke="#bbb" stroke-width="1"/>')
        scale.append(f'<text x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">{mark:g}×</text>')
    title = f"taskqueue against limits and peers, {about['made_on']}: how many times as fast; black: the goal"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="14">{escape(title)}</text>',
        *scale, *bars, "</svg>", "",
    ])
