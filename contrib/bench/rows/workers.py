"""Sixty-four workers of one slot each on PostgreSQL, beside every smaller number: the best of them is what they must keep up
with."""

import time
from contextlib import ExitStack

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, at_least, by_turns
from benchlib.ours import rate, running

TITLE = "64 workers on PostgreSQL, no-op tasks"
ENGINES = ("postgres",)
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
BEST = "the best number of workers"
LIMIT_SECS = 300


def together(bench, engine, workers, tasks):
    """Tasks a second from the start of the first worker to the last end."""
    with bench.store(engine) as store, ExitStack() as stack:
        store.run("settings", "set", "TaskQueueRunnerLimit", max(NUMBERS))
        store.fill(tasks)
        words = ("bench_noop", "work", "--slots", 1, "--idle-exit", "0")
        started = time.time()
        for worker in [stack.enter_context(running(store, *words)) for _ in range(workers)]:
            worker.must_end(started + LIMIT_SECS)
        return rate(store, tasks, started)


def measure(bench, engine):
    tasks = bench.pick(100_000, 2_000)
    numbers = bench.pick(NUMBERS, (1, 8, 64))
    contestants = [(f"{n} workers", lambda n=n: together(bench, engine, n, tasks)) for n in numbers]
    figures = by_turns(bench.pick(3, 1), "/s", contestants)
    best = max((figure for figure in figures if figure.median), key=lambda figure: figure.median, default=figures[0])
    best_of = Figure(BEST, "/s", best.values, best.why_not, note=best.name)
    return [Line("workers", TITLE, SHOWN[engine], figures[-1], [best_of, *figures[:-1]], [at_least(0.9, BEST)])]
