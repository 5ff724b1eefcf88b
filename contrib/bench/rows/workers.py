"""Sixty-four workers of one slot each on PostgreSQL, beside every smaller number: the best of them is what they must keep up
with."""

import subprocess
import time

from benchlib.figures import Figure, Line, NotThere, at_least, by_turns
from benchlib.ours import name_of_worker

TITLE = "64 workers on PostgreSQL, no-op tasks"
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
BEST = "the best number of workers"


def together(bench, workers, tasks):
    """Tasks a second from the start of the first worker to the last end."""
    with bench.store("postgres") as store:
        store.run("settings", "set", "TaskQueueRunnerLimit", 64)
        store.fill(tasks)
        verb = ["work", "--slots", 1, "--idle-exit", "0"] if bench.has_work("bench_noop") else ["process-run", "--drain"]
        started = time.time()
        argv = store.argv("bench_noop", *verb)
        all_of_them = [subprocess.Popen(argv, env=store.env, stderr=subprocess.PIPE, text=True) for _ in range(workers)]
        for worker in all_of_them:
            _, said = worker.communicate()
            if worker.returncode:
                raise NotThere(f"a worker ended with {worker.returncode}: {said[:200]}")
        if store.successes() != tasks:
            raise NotThere(f"{store.successes()} of {tasks} runs succeeded")
        return tasks / (store.last_end() - started)


def measure(bench):
    tasks = bench.pick(100_000, 2_000)
    bench.note(f"workers: {name_of_worker(bench, 1, 'bench_noop')}")
    numbers = bench.pick(NUMBERS, (1, 8, 64))
    contestants = [(f"{n} workers", lambda n=n: together(bench, n, tasks)) for n in numbers]
    figures = by_turns(bench.pick(3, 1), "/s", contestants)
    measured = [figure for figure in figures if figure.median]
    best = max(measured, key=lambda figure: figure.median, default=figures[0])
    best_of = Figure(BEST, "/s", best.values, best.why_not, note=best.name)
    return [Line("workers", TITLE, "PostgreSQL", figures[-1], [best_of, *figures[:-1]], [at_least(0.9, BEST)])]
