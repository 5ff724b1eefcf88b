"""Sixty-four workers of one slot each on PostgreSQL, beside smaller numbers: the best of them is what they must keep up with.
Measured from when the last one has started: processes take their time to start, and that is no matter of how many work."""

import time
from contextlib import ExitStack

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, NotThere, at_least, by_turns
from benchlib.ours import running

TITLE = "64 workers on PostgreSQL, no-op tasks"
ENGINES = ("postgres",)
NUMBERS = (1, 2, 4, 8, 16, 64)
BEST = "the best number of workers"
LIMIT_SECS = 300


def together(bench, engine, workers, tasks):
    """Tasks a second, once all workers are there."""
    with bench.store(engine) as store, ExitStack() as stack:
        store.run("setting", "set", "TaskQueueRunnerLimit", max(NUMBERS))
        store.fill(tasks)
        words = ("bench_noop", "work", "--slots", 1, "--idle-exit", "0")
        started = time.time()
        for worker in [stack.enter_context(running(store, *words)) for _ in range(workers)]:
            worker.must_end(started + LIMIT_SECS)
        if store.successes() != tasks:
            raise NotThere(f"{store.successes()} of {tasks} runs succeeded")
        all_there = store.moments('MAX("StartedOn")', 'FROM "TaskQueueRunners"')[0]
        left = store.successes(f"""AND "FinishedOn" > to_timestamp({all_there:.6f})""")
        return left / (store.last_end() - all_there)


def measure(bench, engine):
    tasks = bench.pick(150_000, 20_000)
    numbers = bench.pick(NUMBERS, (1, 8, 64))
    contestants = [(f"{n} workers", lambda n=n: together(bench, engine, n, tasks)) for n in numbers]
    figures = by_turns(bench.pick(3, 1), "/s", contestants)
    best = max((figure for figure in figures if figure.median), key=lambda figure: figure.median, default=figures[0])
    best_of = Figure(BEST, "/s", best.values, best.why_not, note=best.name)
    return [Line("workers", TITLE, SHOWN[engine], figures[-1], [best_of, *figures[:-1]], [at_least(0.85, BEST)])]
