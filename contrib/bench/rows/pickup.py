"""From `queue` to the handler's start, with a worker that has nothing else to do: in process, and a program of its own."""

import time

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, NotThere, missing, percentile
from benchlib.ours import running

TITLE = "from `queue` to the handler's start"
ENGINES = context.ENGINES
NAMES = ("median", "99th percentile")
LATEST_SECS = 90


def latencies(bench, engine, program, tasks):
    """Milliseconds from the insert, whose commit is still to come then, to the first thing that the handler does."""
    with bench.store(engine) as store:
        stamps = store.place / "stamps"
        stamps.touch()
        with running(store, program, "work", "--slots", 1) as worker:
            for number in range(1, tasks + 1):
                # So long that the worker is idle again, and never in step with a poll of its own.
                time.sleep(0.05 + 0.0037 * (number % 29))
                store.run("queue", "stamp", f'"{stamps}"')
                wait_for_lines(stamps, number, worker)
        started = [float(line) for line in stamps.read_text().split()]
        queued = store.moments('"QueuedOn"', 'FROM "TaskQueue" ORDER BY "Id"')
        return [(s - q) * 1000 for s, q in zip(started, queued, strict=True)]


def wait_for_lines(path, number, worker):
    late = time.monotonic() + LATEST_SECS
    while path.read_bytes().count(b"\n") < number:
        worker.must_live()
        if time.monotonic() > late:
            raise NotThere(f"task {number} was not started within {LATEST_SECS} s")
        time.sleep(0.001)


def measured(bench, engine, program):
    """Two figures of the same latencies."""
    try:
        values = latencies(bench, engine, program, bench.pick(200, 12))
    except NotThere as why:
        return [missing(name, "ms", str(why)) for name in NAMES]
    return [Figure(NAMES[0], "ms", values), Figure(NAMES[1], "ms", [percentile(values, 99)])]


def measure(bench, engine):
    for program, words in (("bench_noop", "in process"), ("taskqueue", "a program")):
        for figure in measured(bench, engine, program):
            yield Line("pickup", f"{TITLE} ({words}), {figure.name}", SHOWN[engine], figure)
