"""Figures, what they are compared with, and rounds that take turns. Knows nothing of databases or programs."""

import statistics
import sys
from dataclasses import dataclass, field


class NotThere(Exception):
    """Something cannot be measured here; the message says why."""


@dataclass
class Figure:
    """What was measured of one contestant, round by round."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    why_not: str = ""
    note: str = ""

    @property
    def median(self):
        return statistics.median(self.values) if self.values else None


@dataclass
class Goal:
    """A bound for our figure, or for its ratio to that of `against`."""

    bound: float
    at_least: bool
    against: str | None = None

    def reached_by(self, value):
        return value >= self.bound if self.at_least else value <= self.bound

    def words(self, unit):
        amount = short(self.bound) + ("" if self.against else f" {unit}".replace(" /", "/"))
        return ("≥ " if self.at_least else "≤ ") + amount


@dataclass
class Line:
    """One thing that was measured on one engine: our figure, the others', and what is to be reached."""

    row: str
    what: str
    engine: str
    ours: Figure
    others: list[Figure] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def ratio(self, other):
        if self.ours.median is None or not other.median:
            return None
        return self.ours.median / other.median

    def verdict(self, goal):
        """The value that counts and whether it reaches the goal; None where it could not be measured."""
        if goal.against is None:
            value = self.ours.median
        else:
            other = next(figure for figure in self.others if figure.name == goal.against)
            value = self.ratio(other)
        return (value, None if value is None else goal.reached_by(value))


def at_least(bound, against=None):
    return Goal(bound, True, against)


def at_most(bound, against=None):
    return Goal(bound, False, against)


def missing(name, unit, why):
    return Figure(name, unit, why_not=why)


def say(text):
    print(text, file=sys.stderr, flush=True)


def by_turns(rounds, unit, contestants, note=say):
    """Every contestant once a round, each round with another one first, so that noise of the machine hits all.

    `contestants` is a list of (name, callable that returns one value). Returns the figures in the same order. One that fails is
    not asked again, and the others go on.
    """
    figures = {name: Figure(name, unit) for name, _ in contestants}
    for turn in range(rounds):
        place = turn % len(contestants)
        for name, measure in contestants[place:] + contestants[:place]:
            figure = figures[name]
            if figure.why_not:
                continue
            try:
                figure.values.append(measure())
            except Exception as error:  # noqa: BLE001
                figure.why_not = reason(error)
                figure.values.clear()
                say(f"    {name}: not measured: {figure.why_not}")
                continue
            if note:
                note(f"    {name}: {short(figure.values[-1])} {unit}")
    return list(figures.values())


def reason(error):
    """Why there is no figure, in one line; an error that nobody foresaw with its name."""
    words = str(error) if isinstance(error, NotThere) else f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:200]


def percentile(values, percent):
    """The value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def short(value):
    """As many digits as one can rely on."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
