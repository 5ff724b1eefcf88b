"""From `queue` to the handler's start, with a worker that has nothing else to do: in process, and a program of its own."""

import signal
import subprocess
import time

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, NotThere, at_most, missing, percentile
from benchlib.stores import epoch

TITLE = "from `queue` to the handler's start, idle worker"
# Median and 99th percentile in milliseconds.
GOALS = {"postgres": (2, 8), "sqlite": (4, 12), "mariadb": None}
QUEUED = {
    "sqlite": 'SELECT "QueuedOn" AS value FROM "TaskQueue" ORDER BY "Id"',
    "postgres": "SELECT to_char(\"QueuedOn\" AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') AS value "
    'FROM "TaskQueue" ORDER BY "Id"',
    "mariadb": "SELECT DATE_FORMAT(QueuedOn, '%Y-%m-%dT%H:%i:%s.%f') AS value FROM TaskQueue ORDER BY Id",
}
LATEST_SECS = 90


def latencies(bench, engine, program, tasks):
    """Milliseconds from the insert, whose commit is still to come then, to the first thing that the handler does."""
    if not bench.has_work(program):
        raise NotThere("there is no `work` yet")
    with bench.store(engine) as store:
        stamps = store.place / "stamps"
        stamps.touch()
        worker = subprocess.Popen(store.argv(program, "work", "--slots", 1), env=store.env, stderr=subprocess.DEVNULL)
        try:
            for number in range(1, tasks + 1):
                # So long that the worker is idle again, and never in step with a poll of its own.
                time.sleep(0.05 + 0.0037 * (number % 29))
                store.run("queue", "stamp", f'"{stamps}"')
                wait_for_lines(stamps, number, worker)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=LATEST_SECS)
        started = [float(line) for line in stamps.read_text().split()]
        return [(s - epoch(q)) * 1000 for s, q in zip(started, store.ask(QUEUED[engine]))]


def wait_for_lines(path, number, worker):
    late = time.monotonic() + LATEST_SECS
    while path.read_bytes().count(b"\n") < number:
        if worker.poll() is not None:
            raise NotThere(f"the worker ended with {worker.returncode}")
        if time.monotonic() > late:
            raise NotThere(f"task {number} was not started within {LATEST_SECS} s")
        time.sleep(0.001)


def measure(bench):
    tasks = bench.pick(300, 12)
    lines = []
    for engine, goals in GOALS.items():
        for program, words in (("bench_noop", "in process"), ("taskqueue", "a program")):
            bench.note(f"pickup: {engine}, {words}")
            try:
                values = latencies(bench, engine, program, tasks)
                figures = [Figure("median", "ms", values), Figure("99th percentile", "ms", [percentile(values, 99)])]
            except NotThere as why:
                figures = [missing(name, "ms", str(why)) for name in ("median", "99th percentile")]
            for place, figure in enumerate(figures):
                bounds = [at_most(goals[place])] if goals else []
                what = f"{TITLE} ({words}), {figure.name}"
                lines.append(Line("pickup", what, SHOWN[engine], figure, [], bounds))
    return lines
