"""A worker's memory at rest and after a million runs, and what an idle one takes of a core; a no-op class in process."""

import os
import time
from pathlib import Path

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, NotThere, at_most, missing
from benchlib.ours import running

TITLE = "a worker's memory and idle time"
ENGINES = context.ENGINES
WORKER = "work --slots 1"
LIMIT_SECS = 600


def resident_mb(pid):
    """What stands in its status; a megabyte is a million bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise NotThere("the worker has ended")


def core_secs(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_runs(store, worker, runs):
    late = time.monotonic() + LIMIT_SECS
    while (done := store.successes()) < runs:
        worker.must_live()
        if time.monotonic() > late:
            raise NotThere(f"{done:,} of {runs:,} runs within {LIMIT_SECS} s")
        time.sleep(2)


def one_worker(bench, engine, runs, idle_secs):
    """Its memory at rest and after so many runs in MB, and percent of a core while idle."""
    with bench.store(engine) as store, running(store, "bench_noop", "work", "--slots", 1) as worker:
        time.sleep(2)
        rest, before = resident_mb(worker.pid), core_secs(worker.pid)
        time.sleep(idle_secs)
        idle = (core_secs(worker.pid) - before) / idle_secs * 100
        store.run("queue", "--batch", store.batch_file(runs, "noop"))
        store.run("create-runs")
        wait_for_runs(store, worker, runs)
        time.sleep(2)
        return rest, resident_mb(worker.pid), idle


def measure(bench, engine):
    runs = bench.pick(1_000_000, 5_000)
    kinds = (("a worker's memory at rest", "MB", 20), (f"a worker's memory after {runs:,} runs", "MB", 20),
             ("an idle worker's processor time", "% of a core", 0.2))
    try:
        values = one_worker(bench, engine, runs, bench.pick(40, 5))
        figures = [Figure(WORKER, unit, [value]) for value, (_, unit, _) in zip(values, kinds)]
    except NotThere as why:
        figures = [missing(WORKER, unit, str(why)) for _, unit, _ in kinds]
    return [Line("memory", what, SHOWN[engine], figure, [], [at_most(bound)])
            for figure, (what, _, bound) in zip(figures, kinds)]
