"""Tasks queued one by one through the library, by one client and by eight, beside bare commits of one row and the peers."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.peers import PEERS

TITLE = "single queueing through the library"
ENGINES = context.ENGINES
LIMIT = "bare commits of one row"
OURS = "TaskQueue::queue"
FANG = "fang"
OF_THE_LIMIT = {"sqlite": 0.85, "postgres": 0.65, "mariadb": 0.65}
# How many commits a second a disk does is anything between a hundred and ten thousand.
FEWEST, MOST, TRIAL = 400, 8_000, 200


def ours(bench, engine, tasks, clients):
    with bench.store(engine) as store:
        return tasks / bench.seconds([bench.program("bench_library"), store.url, str(tasks), str(clients)], env=store.env)


def limit(bench, engine, tasks, clients):
    with bench.store(engine) as store:
        return tasks / bench.limit("commits", store.url, tasks, clients)


def enough(bench, engine, clients):
    """So many tasks as bare commits take about two seconds for, the same share for each client."""
    rate = limit(bench, engine, TRIAL, clients)
    return int(min(MOST, max(FEWEST, rate * bench.pick(2, 0.2)))) // clients * clients


def peers_on(bench, engine, clients):
    """huey's own lock admits but one client of a file."""
    if bench.peers == "none" or (engine == "sqlite" and clients > 1):
        return []
    return [peer for peer in PEERS if peer.engine == engine]


def line(bench, engine, clients):
    tasks = enough(bench, engine, clients)
    contestants = [
        (OURS, lambda: ours(bench, engine, tasks, clients)),
        (LIMIT, lambda: limit(bench, engine, tasks, clients)),
        *((peer.name, lambda peer=peer: peer.add(bench, tasks // 2, clients)) for peer in peers_on(bench, engine, clients)),
    ]
    figures = by_turns(bench.rounds, "/s", contestants)
    what = f"{TITLE}, {clients} client{'s' if clients > 1 else ''}"
    goals = [at_least(OF_THE_LIMIT[engine], LIMIT)]
    if any(figure.name == FANG for figure in figures):
        goals.append(at_least(1.1, FANG))
    return Line("library", what, SHOWN[engine], figures[0], figures[1:], goals)


def measure(bench, engine):
    for clients in (1, 8):
        yield line(bench, engine, clients)
