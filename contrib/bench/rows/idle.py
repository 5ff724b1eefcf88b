"""`process-run` and `tick` with nothing to do, beside a program that connects and looks into a table."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_most, by_turns
from benchlib.ours import process_ms
from rows.queue_once import empty_ms

TITLE = "`process-run` and `tick` with nothing to do"
ENGINES = context.ENGINES
LIMIT = "program that connects and looks"
TIMES_THE_LIMIT = {"process-run": 1.15, "tick": 1.3}


def measure(bench, engine):
    with bench.store(engine) as store:
        bench.limit("commits", store.url, 1, 1)
        *ours, limit = by_turns(bench.pick(101, 11), "ms", [
            ("process-run", lambda: process_ms(store, "process-run")),
            ("tick", lambda: process_ms(store, "tick")),
            (LIMIT, lambda: empty_ms(bench, store, "look")),
        ], note=None)
    return [Line("idle", f"`{figure.name}` with nothing to do", SHOWN[engine], figure, [limit],
                 [at_most(TIMES_THE_LIMIT[figure.name], LIMIT)])
            for figure in ours]
