"""/bin/true with eight slots: ours, the bare spawn loop with the same three pipes and slots, and the peers."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import filled_drain
from benchlib.peers import GRAPHILE, contestants

TITLE = "`work` on /bin/true, 8 slots"
ENGINES = context.ENGINES
SLOTS = 8
OF_THE_LIMIT = {"sqlite": 0.88, "postgres": 0.84, "mariadb": 0.78}
LIMIT = "bare spawn loop, 3 pipes"


def measure(bench, engine):
    tasks = bench.pick(6_000, 600)
    figures = by_turns(bench.rounds, "/s", [
        (f"work --slots {SLOTS}", lambda: filled_drain(bench, engine, tasks, SLOTS, "true")),
        (LIMIT, lambda: tasks / bench.limit("spawn", tasks, SLOTS, "/bin/true")),
        *contestants(bench, engine, bench.pick(2, 0.3), "true"),
    ])
    goals = [at_least(OF_THE_LIMIT[engine], LIMIT)]
    if any(figure.name == GRAPHILE for figure in figures):
        goals.append(at_least(1.0, GRAPHILE))
    return [Line("process", TITLE, SHOWN[engine], figures[0], figures[1:], goals)]
