"""What the data of tasks costs whoever works them off, which stands in the rows that a claim and an end write: tasks in process
that do nothing, with little data and with as much as PostgreSQL keeps in a row; there also with the data kept apart. Only with
--only payload."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, by_turns
from benchlib.ours import drain

TITLE = "no-op tasks in process with much data"
ENGINES = context.ENGINES
TASKS = (50_000, 2_000)
# A row of more than 2,000 bytes is taken apart by PostgreSQL itself.
BYTES = 1_500
APART = 'ALTER TABLE "TaskQueue" ALTER COLUMN "TaskData" SET STORAGE EXTERNAL'
BEYOND = 'ALTER TABLE "TaskQueue" SET (toast_tuple_target = 1024)'


def drained(bench, engine, data_bytes, statements=()):
    tasks = bench.pick(*TASKS)
    with bench.store(engine) as store:
        for statement in statements:
            store.sql(statement)
        store.fill(tasks, data_bytes=data_bytes)
        return drain(store, tasks, 1, "bench_noop")


def measure(bench, engine):
    contestants = [
        (f"{BYTES:,} bytes", lambda: drained(bench, engine, BYTES)),
        ("40 bytes", lambda: drained(bench, engine, 0)),
    ]
    if engine == "postgres":
        contestants.append((f"{BYTES:,} bytes, apart", lambda: drained(bench, engine, BYTES, [APART, BEYOND])))
    figures = by_turns(bench.rounds, "/s", contestants)
    yield Line("payload", TITLE, SHOWN[engine], figures[0], figures[1:])
