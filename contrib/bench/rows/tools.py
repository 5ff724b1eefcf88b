"""Command-line tools that queue or run programs, on `true`: what one more costs, each added by a process of its own, and how
fast a backlog is drained with eight slots. Ours on SQLite, durable; what a tool keeps of it is in the note."""

from benchlib.figures import Line, by_turns
from benchlib.ours import filled_drain, name_of_worker, process_ms
from benchlib.tools import TOOLS

TITLE = "command-line tools on `true`"
SLOTS = 8


def add_ours(bench, number):
    with bench.store("sqlite") as store:
        return sum(process_ms(store, "queue", "true") for _ in range(number)) / number


def measure(bench):
    adds, tasks = bench.pick(200, 20), bench.pick(5_000, 300)
    chosen = TOOLS if bench.peers != "none" else []
    bench.note("tools: adding")
    adding = [("queue", lambda: add_ours(bench, adds))]
    adding += [(tool.name, lambda tool=tool: tool.add_ms(bench, adds)) for tool in chosen if tool.queues]
    added = by_turns(bench.pick(3, 1), "ms", adding)
    bench.note("tools: draining")
    ours = name_of_worker(bench, SLOTS)
    draining = [(ours, lambda: filled_drain(bench, "sqlite", tasks, SLOTS, "true"))]
    draining += [(tool.name, lambda tool=tool: tool.drain(bench, min(tasks, tool.most), SLOTS)) for tool in chosen]
    drained = by_turns(bench.pick(3, 1), "/s", draining)
    for figure in added + drained:
        figure.note = next((tool.note for tool in TOOLS if tool.name == figure.name), "")
    return [
        Line("tools", f"{TITLE}: adding one", "SQLite", added[0], added[1:]),
        Line("tools", f"{TITLE}: draining, {SLOTS} slots", "SQLite", drained[0], drained[1:]),
    ]
