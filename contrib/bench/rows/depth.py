"""A million waiting and five million finished tasks: a claim there beside one with 10,000 and none, by single claims of the
store and by a worker in process that ends after so many runs; and `create-runs` with nothing to do."""

import time

from benchlib import context
from benchlib.context import SHOWN
from benchlib.depth import deep_store
from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import process_ms, work

TITLE = "claim at depth"
ENGINES = context.ENGINES


def single_claims(bench, store):
    number = bench.pick(200, 30)
    return 1 / bench.seconds([bench.program("bench_claims"), store.url, str(number)], env=store.env)


def some_runs(bench, store, slots=1, program="bench_noop"):
    """Runs a second of a worker that ends after so many."""
    before = store.successes()
    started = time.time()
    work(store, slots, program, ["--max-runs", bench.pick(6_000, 500)])
    return (store.successes() - before) / (store.last_end() - started)


def some_programs(bench, store):
    """The same with a program as handler, as in an hour of steady load."""
    return some_runs(bench, store, 8, "taskqueue")


CLAIMS = {
    "single claims": single_claims,
    "runs of a worker in process": some_runs,
    "runs of a worker on /bin/true, 8 slots": some_programs,
}


def on_fresh(bench, engine, tasks, claims):
    with bench.store(engine) as store:
        store.fill_with_runs(tasks)
        return claims(bench, store)


def beside_fresh(bench, row, title, store, words, tasks):
    """A line for each way to claim: on this store, beside fresh ones with so many waiting tasks."""
    fresh = f"a fresh store, {tasks:,} waiting"
    for what, claims in CLAIMS.items():
        contestants = [
            (words, lambda: claims(bench, store)),
            (fresh, lambda: on_fresh(bench, store.engine, tasks, claims)),
        ]
        figures = by_turns(bench.rounds, "/s", contestants)
        yield Line(row, f"{title}: {what}", SHOWN[store.engine], figures[0], figures[1:], [at_least(0.95, fresh)])


def measure(bench, engine):
    with deep_store(bench, engine) as (store, words):
        idle = by_turns(bench.pick(31, 5), "ms", [("create-runs", lambda: process_ms(store, "create-runs"))], note=None)
        yield Line("depth", f"`create-runs` with nothing to do, {words}", SHOWN[engine], idle[0])
        yield from beside_fresh(bench, "depth", TITLE, store, words, bench.pick(10_000, 2_000))
