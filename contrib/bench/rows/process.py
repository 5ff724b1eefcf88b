"""/bin/true with eight slots: ours, the bare spawn loop with the same three pipes and slots, and the peers."""

from benchlib.context import ENGINES, SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import filled_drain, name_of_worker
from benchlib.peers import GRAPHILE, contestants

TITLE = "`work` on /bin/true, 8 slots"
SLOTS = 8
OF_THE_LIMIT = {"sqlite": 0.92, "postgres": 0.85, "mariadb": 0.80}
LIMIT = "bare spawn loop, 3 pipes"


def measure(bench):
    tasks = bench.pick(8_000, 600)
    lines = []
    for engine in ENGINES:
        bench.note(f"process: {engine}")
        ours = name_of_worker(bench, SLOTS)
        limit = lambda: tasks / bench.limit("spawn", tasks, SLOTS, "/bin/true")
        work = lambda engine=engine: filled_drain(bench, engine, tasks, SLOTS, "true")
        peers = contestants(bench, engine, bench.pick(3, 0.3), "true")
        figures = by_turns(bench.rounds, "/s", [(ours, work), (LIMIT, limit), *peers])
        goals = [at_least(OF_THE_LIMIT[engine], LIMIT)]
        if any(figure.name == GRAPHILE for figure in figures):
            goals.append(at_least(1.0, GRAPHILE))
        lines.append(Line("process", TITLE, SHOWN[engine], figures[0], figures[1:], goals))
    return lines
