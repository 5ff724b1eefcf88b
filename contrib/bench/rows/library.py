"""Tasks queued one by one through the library, by one client and by eight, beside bare commits of one row and the peers."""

from benchlib.context import ENGINES, SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.peers import PEERS

TITLE = "single queueing through the library"
LIMIT = "bare commits of one row"
OURS = "TaskQueue::queue"


def ours(bench, engine, tasks, clients):
    with bench.store(engine) as store:
        return tasks / bench.seconds([bench.program("bench_library"), store.url, str(tasks), str(clients)])


def limit(bench, engine, tasks, clients):
    with bench.store(engine) as store:
        return tasks / bench.limit("commits", store.url, tasks, clients)


def measure(bench):
    tasks = bench.pick(10_000, 800)
    lines = []
    for engine in ENGINES:
        for clients in (1, 8):
            bench.note(f"library: {engine}, {clients}")
            contestants = [
                (OURS, lambda e=engine, c=clients: ours(bench, e, tasks, c)),
                (LIMIT, lambda e=engine, c=clients: limit(bench, e, tasks, c)),
            ]
            for peer in PEERS:
                # huey's own lock admits but one client of a file.
                if bench.peers != "none" and peer.engine == engine and not (engine == "sqlite" and clients > 1):
                    number = bench.pick(4_000, 400)
                    contestants.append((peer.name, lambda p=peer, c=clients, n=number: p.add(bench, n, c)))
            figures = by_turns(bench.rounds, "/s", contestants)
            what = f"{TITLE}, {clients} client{'s' if clients > 1 else ''}"
            lines.append(Line("library", what, SHOWN[engine], figures[0], figures[1:], [at_least(0.85, LIMIT)]))
    return lines
