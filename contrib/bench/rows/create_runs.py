"""`create-runs` beside INSERT … SELECT of the same rows, and with nothing to do among many waiting and finished tasks."""

import time

from benchlib.context import ENGINES, SHOWN
from benchlib.depth import deep_store
from benchlib.figures import Line, at_least, at_most, by_turns
from benchlib.ours import process_ms

TITLE = "`create-runs`"
LIMIT = "INSERT … SELECT of the same rows"


def creating(bench, engine, tasks):
    with bench.store(engine) as store:
        store.run("queue", "--batch", store.batch_file(tasks, "noop"))
        store.analyze()
        started = time.perf_counter()
        store.run("create-runs")
        return tasks / (time.perf_counter() - started)


def selecting(bench, engine, tasks):
    with bench.store(engine) as store:
        store.run("queue", "--batch", store.batch_file(tasks, "noop"))
        store.analyze()
        return tasks / bench.limit("select", store.url)


def measure(bench):
    tasks = bench.pick(200_000, 10_000)
    lines = []
    for engine in ENGINES:
        bench.note(f"create_runs: {engine}")
        contestants = [
            ("create-runs", lambda e=engine: creating(bench, e, tasks)),
            (LIMIT, lambda e=engine: selecting(bench, e, tasks)),
        ]
        figures = by_turns(bench.rounds, "/s", contestants)
        lines.append(Line("create_runs", "`create-runs`, creating", SHOWN[engine], figures[0], figures[1:],
                          [at_least(0.4, LIMIT)]))
        with deep_store(bench, engine) as (store, words):
            idle = [("create-runs", lambda s=store: process_ms(s, "create-runs"))]
            figures = by_turns(bench.pick(31, 5), "ms", idle, note=lambda _: None)
        lines.append(Line("create_runs", f"`create-runs` with nothing to do, {words}", SHOWN[engine], figures[0], [],
                          [at_most(10)]))
    return lines
