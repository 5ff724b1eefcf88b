"""Tasks queued one by one through the library, by one client and by eight, beside bare commits of one row and the peers."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.peers import PEERS

TITLE = "single queueing through the library"
ENGINES = context.ENGINES
LIMIT = "bare commits of one row"
OURS = "TaskQueue::queue"


def ours(bench, engine, tasks, clients):
    with bench.store(engine) as store:
        return tasks / bench.seconds([bench.program("bench_library"), store.url, str(tasks), str(clients)], env=store.env)


def limit(bench, engine, tasks, clients):
    with bench.store(engine) as store:
        return tasks / bench.limit("commits", store.url, tasks, clients)


def peers_on(bench, engine, clients):
    """huey's own lock admits but one client of a file."""
    if bench.peers == "none" or (engine == "sqlite" and clients > 1):
        return []
    return [peer for peer in PEERS if peer.engine == engine]


def line(bench, engine, clients):
    tasks, jobs = bench.pick(8_000, 800), bench.pick(2_000, 400)
    contestants = [
        (OURS, lambda: ours(bench, engine, tasks, clients)),
        (LIMIT, lambda: limit(bench, engine, tasks, clients)),
        *((peer.name, lambda peer=peer: peer.add(bench, jobs, clients)) for peer in peers_on(bench, engine, clients)),
    ]
    figures = by_turns(bench.rounds, "/s", contestants)
    what = f"{TITLE}, {clients} client{'s' if clients > 1 else ''}"
    return Line("library", what, SHOWN[engine], figures[0], figures[1:], [at_least(0.85, LIMIT)])


def measure(bench, engine):
    for clients in (1, 8):
        yield line(bench, engine, clients)
