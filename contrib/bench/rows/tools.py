"""Command-line tools that queue or run programs, on `true`: what one more costs, each added by a process of its own, and how
fast a backlog is drained with eight slots. Ours on SQLite, durable; what a tool keeps of it is in the note."""

from benchlib.context import SHOWN
from benchlib.figures import Line, by_turns
from benchlib.ours import filled_drain, process_ms
from benchlib.tools import TOOLS

TITLE = "command-line tools on `true`"
ENGINES = ("sqlite",)
SLOTS = 8


def add_ours(bench, engine, number):
    with bench.store(engine) as store:
        return sum(process_ms(store, "queue", "true") for _ in range(number)) / number


def with_notes(figures):
    notes = {tool.name: tool.note for tool in TOOLS}
    for figure in figures:
        figure.note = notes.get(figure.name, "")
    return figures


def measure(bench, engine):
    adds, tasks, rounds = bench.pick(200, 20), bench.pick(5_000, 300), bench.pick(3, 1)
    tools = TOOLS if bench.peers != "none" else []
    added = with_notes(by_turns(rounds, "ms", [
        ("queue", lambda: add_ours(bench, engine, adds)),
        *((tool.name, lambda tool=tool: tool.add_ms(bench, adds)) for tool in tools if tool.queues),
    ]))
    yield Line("tools", f"{TITLE}: adding one", SHOWN[engine], added[0], added[1:])
    drained = with_notes(by_turns(rounds, "/s", [
        (f"work --slots {SLOTS}", lambda: filled_drain(bench, engine, tasks, SLOTS, "true")),
        *((tool.name, lambda tool=tool: tool.drain(bench, min(tasks, tool.most), SLOTS)) for tool in tools),
    ]))
    yield Line("tools", f"{TITLE}: draining, {SLOTS} slots", SHOWN[engine], drained[0], drained[1:])
