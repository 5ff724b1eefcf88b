"""What a worker starts after many runs while another session holds an old snapshot, beside a fresh store; PostgreSQL."""

import subprocess

from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import work
from rows.depth import some_runs

TITLE = "claim behind an old snapshot"
ENGINES = ("postgres",)


def on_fresh(bench, engine, tasks):
    with bench.store(engine) as store:
        store.fill(tasks)
        return some_runs(bench, store)


def measure(bench, engine):
    before, more = bench.pick(200_000, 3_000), bench.pick(50_000, 5_000)
    waiting = bench.pick(10_000, 2_000)
    with bench.store(engine) as store:
        store.fill(before + more)
        holder = subprocess.Popen([bench.program("bench_limits"), "hold", store.url], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        holder.stdout.readline()
        try:
            work(store, 1, "bench_noop", ["--max-runs", before])
            fresh = f"a fresh store, {waiting:,} waiting"
            figures = by_turns(bench.rounds, "/s", [
                (f"after {before:,} runs", lambda: some_runs(bench, store)),
                (fresh, lambda: on_fresh(bench, engine, waiting)),
            ])
            yield Line("snapshot", TITLE, SHOWN[engine], figures[0], figures[1:], [at_least(0.95, fresh)])
        finally:
            holder.communicate()
