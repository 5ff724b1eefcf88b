"""An hour of steady load on PostgreSQL: a worker with eight slots on /bin/true, and a feeder that never lets it run dry. Ends a
second in the last twelfth of the time beside those in the first. Only with --only hour."""

import signal
import subprocess
import time

from benchlib.figures import Figure, Line, NotThere, at_least, missing

TITLE = "an hour of steady load"
FIRST = "the first five minutes"
WAITING = """SELECT CAST(COUNT(*) AS char(20)) AS value FROM "TaskQueueRuns" WHERE "Status" = 'scheduled'"""


def ends_between(store, since, until):
    """Ends a second in a stretch of time."""
    moments = [f"to_timestamp({moment:.6f})" for moment in (since, until)]
    question = f"""SELECT CAST(COUNT(*) AS char(20)) AS value FROM "TaskQueueRuns"
                   WHERE "FinishedOn" >= {moments[0]} AND "FinishedOn" < {moments[1]}"""
    return int(store.ask(question)[0]) / (until - since)


def steady(bench, store, secs, part):
    worker = subprocess.Popen(store.argv("taskqueue", "work", "--slots", 8), env=store.env, stderr=subprocess.DEVNULL)
    started = time.time()
    rates = []
    try:
        while time.time() < started + secs:
            if worker.poll() is not None:
                raise NotThere(f"the worker ended with {worker.returncode}")
            if int(store.ask(WAITING)[0]) < part:
                store.run("queue", "--batch", store.batch_file(part, "true"))
                store.run("create-runs")
            time.sleep(1)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=120)
    twelfth = secs / 12
    for n in range(12):
        rates.append(ends_between(store, started + n * twelfth, started + (n + 1) * twelfth))
        bench.note(f"  {n + 1} of 12: {rates[-1]:,.0f}/s")
    return rates


def measure(bench):
    secs, part = bench.pick(3_600, 36), bench.pick(20_000, 3_000)
    bench.note(f"hour: {secs} seconds")
    try:
        if not bench.has_work("taskqueue"):
            raise NotThere("there is no `work` yet")
        with bench.store("postgres") as store:
            store.fill(2 * part, "true")
            rates = steady(bench, store, secs, part)
        last, first = Figure("the last five minutes", "/s", rates[-1:]), Figure(FIRST, "/s", rates[:1])
        last.note = "each twelfth: " + ", ".join(f"{rate:,.0f}" for rate in rates)
    except NotThere as why:
        last, first = (missing(name, "/s", str(why)) for name in ("the last five minutes", FIRST))
    return [Line("hour", TITLE if secs == 3_600 else f"{TITLE} ({secs} s)", "PostgreSQL", last, [first],
                 [at_least(0.95, FIRST)])]
