"""A claim with a million waiting and five million finished tasks, beside one with 10,000 and none: by single claims of the
store, and by a worker in process that is stopped after some of them."""

import time

from benchlib.context import ENGINES, SHOWN
from benchlib.depth import deep_store
from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import work

TITLE = "claim at depth"
SHALLOW = "the same with 10,000 and none"


def claims(bench, store, number):
    return 1 / bench.seconds([bench.program("bench_claims"), store.url, str(number)], env=store.env)


def some_runs(store, number):
    """Runs a second of a worker that ends after so many."""
    before = store.successes()
    started = time.time()
    work(store, 1, "bench_noop", ["--max-runs", number])
    return (store.successes() - before) / (store.last_end() - started)


def measure(bench):
    lines = []
    for engine in ENGINES:
        bench.note(f"depth: {engine}")
        with bench.store(engine) as shallow, deep_store(bench, engine) as (deep, words):
            shallow.fill(bench.pick(10_000, 2_000))
            single = bench.pick(200, 30)
            runs = bench.pick(1_500, 200)
            for what, measured in (
                ("single claims", lambda store: claims(bench, store, single)),
                ("runs of a worker in process", lambda store: some_runs(store, runs)),
            ):
                figures = by_turns(bench.rounds, "/s",
                                   [(words, lambda: measured(deep)), (SHALLOW, lambda: measured(shallow))])
                lines.append(Line("depth", f"{TITLE}: {what}", SHOWN[engine], figures[0], figures[1:],
                                  [at_least(0.9, SHALLOW)]))
    return lines
