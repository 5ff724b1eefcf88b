"""`queue --batch` as a whole process, beside the same rows by the engine's fastest plain statements into the same table."""

import time

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.peers import PEERS

TITLE = "`queue --batch`"
ENGINES = context.ENGINES
LIMITS = {"sqlite": "one prepared INSERT", "postgres": "COPY", "mariadb": "INSERT with rows of 500"}


def ours(bench, engine, tasks):
    with bench.store(engine) as store:
        batch = store.batch_file(tasks, "noop")
        started = time.perf_counter()
        store.run("queue", "--batch", batch)
        return tasks / (time.perf_counter() - started)


def limit(bench, engine, tasks):
    with bench.store(engine) as store:
        return tasks / bench.limit("bulk", store.url, tasks)


def measure(bench, engine):
    tasks = bench.pick(200_000, 20_000)
    contestants = [
        ("queue --batch", lambda: ours(bench, engine, tasks)),
        (LIMITS[engine], lambda: limit(bench, engine, tasks)),
    ]
    for peer in PEERS:
        if bench.peers != "none" and peer.bulk and peer.engine == engine:
            jobs = min(bench.pick(30_000, 5_000), peer.noop_rate * 10)
            contestants.append((peer.name, lambda peer=peer, jobs=jobs: peer.fill(bench, jobs)))
    figures = by_turns(bench.rounds, "/s", contestants)
    return [Line("batch", TITLE, SHOWN[engine], figures[0], figures[1:], [at_least(0.6, LIMITS[engine])])]
