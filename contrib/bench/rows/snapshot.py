"""Claims after many runs while another session holds an old snapshot, beside a fresh store; PostgreSQL."""

import subprocess

from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import work
from rows.depth import claims, some_runs

TITLE = "claim behind an old snapshot"
FRESH = "the same on a fresh store"


def measure(bench):
    before = bench.pick(200_000, 3_000)
    more = bench.pick(20_000, 1_500)
    lines = []
    with bench.store("postgres") as old, bench.store("postgres") as fresh:
        bench.note(f"snapshot: {before:,} runs while a snapshot is held")
        old.fill(before + more)
        fresh.fill(more)
        holder = subprocess.Popen([bench.program("bench_limits"), "hold", old.url], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        holder.stdout.readline()
        try:
            work(old, 1, "bench_noop", ["--max-runs", before])
            for what, measured in (
                ("single claims", lambda store: claims(bench, store, bench.pick(200, 30))),
                ("runs of a worker in process", lambda store: some_runs(store, bench.pick(2_500, 200))),
            ):
                words = f"after {before:,} runs"
                figures = by_turns(bench.rounds, "/s",
                                   [(words, lambda: measured(old)), (FRESH, lambda: measured(fresh))])
                lines.append(Line("snapshot", f"{TITLE}: {what}", "PostgreSQL", figures[0], figures[1:],
                                  [at_least(0.9, FRESH)]))
        finally:
            holder.communicate()
    return lines
