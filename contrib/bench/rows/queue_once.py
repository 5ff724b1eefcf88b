"""`queue` once, as a whole process, beside an empty program that connects and commits one row."""

import subprocess
import time

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_most, by_turns
from benchlib.ours import process_ms

TITLE = "`queue` once, whole process"
ENGINES = context.ENGINES
LIMIT = "program that connects and commits"
GOALS = {"sqlite": 1.0, "postgres": 1.25, "mariadb": 1.25}


def empty_ms(bench, store, *words):
    argv = [bench.program("bench_empty"), store.url, *words]
    started = time.perf_counter()
    subprocess.run(argv, check=True)
    return (time.perf_counter() - started) * 1000


def measure(bench, engine):
    with bench.store(engine) as store:
        bench.limit("commits", store.url, 1, 1)
        figures = by_turns(bench.pick(101, 11), "ms", [
            ("queue", lambda: process_ms(store, "queue", "noop", '{"to":"user@example.org"}')),
            (LIMIT, lambda: empty_ms(bench, store)),
        ], note=None)
    return [Line("queue_once", TITLE, SHOWN[engine], figures[0], figures[1:], [at_most(GOALS[engine], LIMIT)])]
