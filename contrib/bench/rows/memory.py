"""A worker's memory at rest and after a million runs, and what an idle one takes of a core; a no-op class in process."""

import os
import signal
import subprocess
import time
from pathlib import Path

from benchlib.context import ENGINES, SHOWN
from benchlib.figures import Figure, Line, NotThere, at_most, missing

TITLE = "a worker's memory and idle time"
NAMES = (("memory at rest", "MB", 20), ("memory after {runs:,} runs", "MB", 20), ("idle worker", "% of a core", 0.2))


def resident_mb(pid):
    """What stands in its status; a megabyte is a million bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise NotThere("the worker has ended")


def core_secs(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_worker(bench, engine, runs, idle_secs):
    if not bench.has_work("bench_noop"):
        raise NotThere("there is no `work` yet")
    with bench.store(engine) as store:
        worker = subprocess.Popen(store.argv("bench_noop", "work", "--slots", 1), env=store.env,
                                  stderr=subprocess.DEVNULL)
        try:
            time.sleep(2)
            rest, before = resident_mb(worker.pid), core_secs(worker.pid)
            time.sleep(idle_secs)
            idle = (core_secs(worker.pid) - before) / idle_secs * 100
            store.run("queue", "--batch", store.batch_file(runs, "noop"))
            store.run("create-runs")
            late = time.monotonic() + 600
            while store.successes() < runs:
                if time.monotonic() > late or worker.poll() is not None:
                    raise NotThere(f"{store.successes():,} of {runs:,} runs within 600 s")
                time.sleep(1)
            return rest, resident_mb(worker.pid), idle
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=120)


def measure(bench):
    runs = bench.pick(1_000_000, 5_000)
    lines = []
    for engine in ENGINES:
        bench.note(f"memory: {engine}")
        try:
            values, why = one_worker(bench, engine, runs, bench.pick(60, 5)), ""
        except NotThere as reason:
            values, why = (None,) * len(NAMES), str(reason)
        for (name, unit, bound), value in zip(NAMES, values):
            name = name.format(runs=runs)
            figure = missing("work --slots 1", unit, why) if why else Figure("work --slots 1", unit, [value])
            lines.append(Line("memory", name, SHOWN[engine], figure, [], [at_most(bound)]))
    return lines
