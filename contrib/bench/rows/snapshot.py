"""Claims after many runs while another session holds an old snapshot, beside a fresh store; PostgreSQL."""

import subprocess

from benchlib.ours import work
from rows.depth import beside_fresh

TITLE = "claim behind an old snapshot"
ENGINES = ("postgres",)


def measure(bench, engine):
    before, more = bench.pick(200_000, 3_000), bench.pick(50_000, 5_000)
    with bench.store(engine) as store:
        store.fill_with_runs(before + more)
        holder = subprocess.Popen([bench.program("bench_limits"), "hold", store.url], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        holder.stdout.readline()
        try:
            work(store, 1, "bench_noop", ["--max-runs", before])
            words = f"after {before:,} runs"
            yield from beside_fresh(bench, "snapshot", TITLE, store, words, bench.pick(10_000, 2_000))
        finally:
            holder.communicate()
