"""What a no-op task writes: counts, which no other load on the machine changes. From the claim to the recorded success, in
process by one worker, and the same with the INSERT of the task."""

import resource

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, at_most
from benchlib.ours import drain

TITLE = "what a no-op task writes"
ENGINES = context.ENGINES
WORKER = "work --slots 1"
BLOCK_BYTES = 512
MARIADB = {
    "log": "SELECT VARIABLE_VALUE AS value FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_OS_LOG_WRITTEN'",
    "rows": "SELECT CAST(SUM(VARIABLE_VALUE) AS CHAR(20)) AS value FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME "
            "IN ('HANDLER_WRITE', 'HANDLER_UPDATE', 'HANDLER_DELETE')",
}
POSTGRES = {
    "log": "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint::text AS value",
    "dead": "SELECT SUM(n_dead_tup)::bigint::text AS value FROM pg_stat_user_tables",
    "commits": "SELECT xact_commit::text AS value FROM pg_stat_database WHERE datname = current_database()",
}


def counts_of(store, questions):
    return {name: round(float(store.ask(question)[0])) for name, question in questions.items()}


def blocks_written():
    """By what this process has started and waited for."""
    return {"log": resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock * BLOCK_BYTES}


def counted(store, engine):
    if engine == "postgres":
        return counts_of(store, POSTGRES)
    return counts_of(store, MARIADB) if engine == "mariadb" else blocks_written()


def one_round(bench, engine, tasks):
    """What each part has added, for each task."""
    with bench.store(engine) as store:
        if engine == "postgres":
            # What is cleaned up is counted no more.
            store.sql('ALTER TABLE "TaskQueue" SET (autovacuum_enabled = off); '
                      'ALTER TABLE "TaskQueueRuns" SET (autovacuum_enabled = off)')
        began = counted(store, engine)
        store.fill(tasks, "noop")
        filled = counted(store, engine)
        drain(store, tasks, 1, "bench_noop")
        done = counted(store, engine)
    run = {name: (done[name] - filled[name]) / tasks for name in done}
    return {**run, "log with the INSERT": (done["log"] - began["log"]) / tasks}


# What is counted, its unit, and the most that it may be.
KINDS = {
    "postgres": (("log", "bytes of its log", "bytes", 1_550), ("log with the INSERT", "the same with its INSERT", "bytes", None),
                 ("dead", "dead row versions", "rows", 1.5), ("commits", "commits", "commits", 0.01)),
    "mariadb": (("log", "bytes of its log", "bytes", None), ("log with the INSERT", "the same with its INSERT", "bytes", None),
                ("rows", "rows that are written", "rows", None)),
    "sqlite": (("log", "bytes that the worker writes", "bytes", None),),
}


def measure(bench, engine):
    tasks = bench.pick(40_000, 4_000)
    rounds = [one_round(bench, engine, tasks) for _ in range(bench.rounds)]
    return [Line("writes", f"{TITLE}: {what}", SHOWN[engine], Figure(WORKER, unit, [one[name] for one in rounds]), [],
                 [] if bound is None else [at_most(bound)])
            for name, what, unit, bound in KINDS[engine]]
