"""`create-runs` beside INSERT … SELECT of the same rows. With nothing to do it is measured in the row `depth`."""

import time
from contextlib import contextmanager

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns

TITLE = "`create-runs`, creating"
ENGINES = context.ENGINES
LIMIT = "INSERT … SELECT of the same rows"
OF_THE_LIMIT = {"sqlite": 0.5, "postgres": 0.4, "mariadb": 0.45}


@contextmanager
def queued(bench, engine, tasks):
    """A store with so many tasks that wait for their runs."""
    with bench.store(engine) as store:
        store.run("queue", "--batch", store.batch_file(tasks, "noop"))
        store.analyze()
        yield store


def creating(bench, engine, tasks):
    with queued(bench, engine, tasks) as store:
        started = time.perf_counter()
        store.run("create-runs")
        return tasks / (time.perf_counter() - started)


def selecting(bench, engine, tasks):
    with queued(bench, engine, tasks) as store:
        return tasks / bench.limit("select", store.url)


def measure(bench, engine):
    tasks = bench.pick(100_000, 10_000)
    contestants = [
        ("create-runs", lambda: creating(bench, engine, tasks)),
        (LIMIT, lambda: selecting(bench, engine, tasks)),
    ]
    figures = by_turns(bench.rounds, "/s", contestants)
    return [Line("create_runs", TITLE, SHOWN[engine], figures[0], figures[1:], [at_least(OF_THE_LIMIT[engine], LIMIT)])]
