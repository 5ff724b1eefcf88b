"""A batch of one limit key, queued before a few tasks of ten other keys: the number of claims until the last of the others has
started, by a worker and by `process-run`; and what keys cost a worker, beside the same runs without a key. Only with
--only turns."""

import json

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, NotThere, at_most, by_turns
from benchlib.ours import drain

TITLE = "keys take turns"
ENGINES = context.ALL_ENGINES
BATCH = (100_000, 5_000)
# Of ten keys, and the claims within which they are to be through.
OTHERS, CLAIMS = 100, 1_000
DRAINED = (2_000, 300)


def fill(store, tasks):
    """Queues a list of (number, class, key of each number), and creates the runs."""
    path = store.place / "keyed.ndjson"
    with path.open("w") as out:
        for count, task_class, key_of in tasks:
            for n in range(count):
                key = key_of(n)
                out.write(json.dumps({"class": task_class} | ({"limit_key": key} if key else {})) + "\n")
    store.run("queue", "--batch", path)
    store.run("create-runs")
    store.analyze()


def claims_until_through(bench, engine, words):
    """Tasks of the class `true` are the others. Runs that start at once count, whichever was first."""
    with bench.store(engine) as store:
        fill(store, [(bench.pick(*BATCH), "noop", lambda _: "a"), (OTHERS, "true", lambda n: f"other-{n % 10}")])
        store.run(*words)
        started = """FROM "TaskQueueRuns" WHERE "StartedOn" IS NOT NULL"""
        others = store.number("COUNT(*)", f"""{started} AND "TaskClass" = 'true'""")
        if others != OTHERS:
            raise NotThere(f"{others} of {OTHERS} others started")
        last = f"""(SELECT MAX("StartedOn") {started} AND "TaskClass" = 'true')"""
        return store.number("COUNT(*)", f'{started} AND "StartedOn" <= {last}')


def drained(bench, engine, key_of):
    tasks = bench.pick(*DRAINED)
    with bench.store(engine) as store:
        fill(store, [(tasks, "noop", key_of)])
        return drain(store, tasks, 4)


def measure(bench, engine):
    ways = [("work", "--slots", "1", "--max-runs", "1500"), ("process-run", "--max-runs", "1500")]
    contestants = [(" ".join(words), lambda words=words: claims_until_through(bench, engine, words)) for words in ways]
    figures = by_turns(1, "claims", contestants)
    for figure in figures:
        yield Line("turns", f"{TITLE}: {figure.name}", SHOWN[engine], figure, [], [at_most(CLAIMS)])
    figures = by_turns(bench.rounds, "/s", [
        ("ten keys", lambda: drained(bench, engine, lambda n: f"key-{n % 10}")),
        ("no key", lambda: drained(bench, engine, lambda _: None)),
    ])
    yield Line("turns", f"{TITLE}: runs of a worker on /bin/true, 4 slots", SHOWN[engine], figures[0], figures[1:])
