"""`queue --batch` as a whole process, beside the same rows by the engine's fastest plain statements into the same table."""

import time

from benchlib.context import ENGINES, SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.peers import PEERS

TITLE = "`queue --batch`"
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


def measure(bench):
    tasks = bench.pick(300_000, 20_000)
    lines = []
    for engine in ENGINES:
        bench.note(f"batch: {engine}")
        contestants = [
            ("queue --batch", lambda engine=engine: ours(bench, engine, tasks)),
            (LIMITS[engine], lambda engine=engine: limit(bench, engine, tasks)),
        ]
        for peer in PEERS:
            if bench.peers != "none" and peer.bulk and peer.engine == engine:
                contestants.append((peer.name, lambda peer=peer: peer.fill(bench, bench.pick(100_000, 10_000))))
        figures = by_turns(bench.rounds, "/s", contestants)
        goals = [at_least(0.6, LIMITS[engine])]
        lines.append(Line("batch", TITLE, SHOWN[engine], figures[0], figures[1:], goals))
    return lines
