"""`process-run` and `tick` with nothing to do, beside a program that connects and looks into a table."""

from benchlib.context import ENGINES, SHOWN
from benchlib.figures import Line, at_most, by_turns
from benchlib.ours import process_ms
from rows.queue_once import empty_ms

LIMIT = "program that connects and looks"
GOALS = {"sqlite": 3, "mariadb": 5, "postgres": 7}


def measure(bench):
    lines = []
    for engine in ENGINES:
        bench.note(f"idle: {engine}")
        with bench.store(engine) as store:
            bench.limit("commits", store.url, 1, 1)
            contestants = [
                ("process-run", lambda s=store: process_ms(s, "process-run")),
                ("tick", lambda s=store: process_ms(s, "tick")),
                (LIMIT, lambda s=store: empty_ms(bench, s, "look")),
            ]
            run, tick, limit = by_turns(bench.pick(101, 11), "ms", contestants, note=lambda _: None)
        for figure in (run, tick):
            what = f"`{figure.name}` with nothing to do"
            lines.append(Line("idle", what, SHOWN[engine], figure, [limit], [at_most(GOALS[engine])]))
    return lines


TITLE = "`process-run` and `tick` with nothing to do"
