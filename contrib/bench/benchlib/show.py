"""The results as a text table, as JSON, and as the table of docs/benchmarks.md."""

import json
from dataclasses import asdict

from .figures import short

HEAD = ("what", "engine", "who", "median", "spread", "us / them", "goal", "")


def table_rows(lines):
    """A row for each figure: ours with the bounds that stand alone, then the others with ratios and theirs."""
    before = None
    for line in lines:
        first = (line.what, line.engine) if (line.what, line.engine) != before else ("", "")
        before = (line.what, line.engine)
        yield (*first, *figure_cells(line.ours), "", *goal_cells(line, None))
        for other in line.others:
            ratio = line.ratio(other)
            yield ("", "", *figure_cells(other), f"{ratio:.2f}" if ratio else "", *goal_cells(line, other.name))


def figure_cells(figure):
    if figure.median is None:
        return (figure.name, f"not measured: {figure.why_not}", "")
    unit = figure.unit if figure.unit.startswith("/") else f" {figure.unit}"
    spread = f"{short(min(figure.values))}–{short(max(figure.values))}" if len(figure.values) > 1 else ""
    name = f"{figure.name} ({figure.note})" if figure.note else figure.name
    return (name, f"{short(figure.median)}{unit}", spread)


def goal_cells(line, against):
    goals = [goal for goal in line.goals if goal.against == against]
    if not goals:
        return ("", "")
    goal = goals[0]
    _, reached = line.verdict(goal)
    return (goal.words(line.ours.unit), {True: "yes", False: "NO", None: "?"}[reached])


def text_table(lines):
    """Aligned columns. A long reason is not allowed to widen them: it stands in its own row."""
    rows = [HEAD, *table_rows(lines)]
    widest = (74, 10, 44, 16, 20, 9, 14, 3)
    widths = [min(most, max(len(row[place]) for row in rows)) for place, most in enumerate(widest)]
    out = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        out.append("  ".join(cells).rstrip())
    out.insert(1, "-" * max(len(text) for text in out[:1]))
    return "\n".join(out)


def summary(lines):
    """How many goals are reached, and plainly which are not."""
    counted = [(line, goal, *line.verdict(goal)) for line in lines for goal in line.goals]
    lost = [f"  {words_of(line, goal)}: {short(value)}" for line, goal, value, reached in counted if reached is False]
    unknown = [f"  {words_of(line, goal)}" for line, goal, _, reached in counted if reached is None]
    reached = sum(1 for *_, reached in counted if reached)
    parts = [f"{reached} of {len(counted)} goals reached."]
    parts += ["Not reached:", *lost] if lost else []
    parts += ["Not measured:", *unknown] if unknown else []
    return "\n".join(parts)


def words_of(line, goal):
    against = f" against {goal.against}" if goal.against else ""
    return f"{line.what}, {line.engine}{against} (goal {goal.words(line.ours.unit)})"


def as_json(lines, versions, about):
    def told(line):
        goals = [{**asdict(goal), "value": line.verdict(goal)[0], "reached": line.verdict(goal)[1]}
                 for goal in line.goals]
        figures = [{**asdict(figure), "median": figure.median, "ratio": line.ratio(figure) if figure is not line.ours
                    else None} for figure in (line.ours, *line.others)]
        return {"row": line.row, "what": line.what, "engine": line.engine, "figures": figures, "goals": goals}

    return json.dumps({**about, "versions": versions, "lines": [told(line) for line in lines]}, indent=1,
                      ensure_ascii=False)


def markdown(lines, versions, about):
    """What stands in docs/benchmarks.md between the marks."""
    escaped = lambda cell: cell.replace("|", "\\|")
    out = [f"Made {about['made_on']} by `{about['command']}`, {about['rounds']} rounds.", ""]
    out += [f"- {name}: {escaped(text)}" for name, text in versions.items()]
    out += ["", "| " + " | ".join(HEAD) + " |", "| --- | --- | --- | --: | --: | --: | --: | --- |"]
    out += ["| " + " | ".join(escaped(cell) for cell in row) + " |" for row in table_rows(lines)]
    out += ["", "```text", summary(lines), "```"]
    return "\n".join(out)
