"""An hour of steady load on PostgreSQL: a worker with eight slots on /bin/true, and a feeder that never lets it run dry. Ends a
second in the last twelfth of the time beside those in the first. Only with --only hour."""

import time

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, NotThere, at_least, missing
from benchlib.ours import running

TITLE = "an hour of steady load"
ENGINES = ("postgres",)
PARTS = 12
FIRST, BETWEEN, LAST = "the first five minutes", "the ten between", "the last five minutes"


def runs_so_far(store):
    """Each task has one run. To count them would be a load of its own."""
    return store.number('COALESCE(MAX("Id"), 0)', 'FROM "TaskQueueRuns"')


def keep_busy(store, secs, tasks):
    """A worker and its feeder for so long, from a store with twice so many tasks on; returns when it began."""
    queued = 2 * tasks
    with running(store, "taskqueue", "work", "--slots", 8) as worker:
        started = time.time()
        while time.time() < started + secs:
            worker.must_live()
            if queued - runs_so_far(store) < tasks:
                store.run("queue", "--batch", store.batch_file(tasks, "true"))
                queued += tasks
            time.sleep(1)
    return started


def ends_between(store, since, until):
    """Ends a second in a stretch of time."""
    when = f"""AND "FinishedOn" >= to_timestamp({since:.6f}) AND "FinishedOn" < to_timestamp({until:.6f})"""
    return store.successes(when) / (until - since)


def rates(bench, engine, secs, tasks):
    with bench.store(engine) as store:
        store.fill(2 * tasks, "true")
        started, part = keep_busy(store, secs, tasks), secs / PARTS
        return [ends_between(store, started + n * part, started + (n + 1) * part) for n in range(PARTS)]


def measure(bench, engine):
    secs, tasks = bench.pick(3_600, 36), bench.pick(20_000, 3_000)
    try:
        all_rates = rates(bench, engine, secs, tasks)
        parts = {LAST: all_rates[-1:], FIRST: all_rates[:1], BETWEEN: all_rates[1:-1]}
        last, *others = [Figure(name, "/s", values) for name, values in parts.items()]
    except NotThere as why:
        last, *others = [missing(name, "/s", str(why)) for name in (LAST, FIRST)]
    what = TITLE if secs == 3_600 else f"{TITLE} (a look of {secs} s)"
    return [Line("hour", what, SHOWN[engine], last, others, [at_least(0.96, FIRST)])]
