"""What a no-op task writes: counts, which no other load on the machine changes. From the claim to the recorded success, in
process by one worker, and the same with the INSERT of the task. On PostgreSQL awa, too, which keeps finished jobs as we do."""

import resource

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, at_most, by_turns
from benchlib.ours import drain
from benchlib.peers import AWA, PEERS

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
# What is cleaned up is counted no more.
NO_AUTOVACUUM = """DO $$ DECLARE place regclass; BEGIN
    FOR place IN SELECT relid FROM pg_stat_user_tables JOIN pg_class ON oid = relid WHERE relkind = 'r'
    LOOP EXECUTE 'ALTER TABLE ' || place || ' SET (autovacuum_enabled = off)'; END LOOP; END $$"""


def counts_of(store, questions):
    return {name: round(float(store.ask(question)[0])) for name, question in questions.items()}


def blocks_written():
    """By what this process has started and waited for."""
    return {"log": resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock * BLOCK_BYTES}


def counted(store, engine):
    if engine == "postgres":
        return counts_of(store, POSTGRES)
    return counts_of(store, MARIADB) if engine == "mariadb" else blocks_written()


def one_round(store, engine, tasks, fill, work_off):
    """What each part has added, for each task. Each database that is dropped ends with a checkpoint, so that the next one falls
    into no round, and the full images of pages that follow one are in none."""
    if engine == "postgres":
        store.sql(NO_AUTOVACUUM)
    began = counted(store, engine)
    fill()
    filled = counted(store, engine)
    work_off()
    done = counted(store, engine)
    run = {name: (done[name] - filled[name]) / tasks for name in done}
    return {**run, "log with the INSERT": (done["log"] - began["log"]) / tasks}


def ours(bench, engine, tasks):
    with bench.store(engine) as store:
        return one_round(store, engine, tasks, lambda: store.fill(tasks, "noop"),
                         lambda: drain(store, tasks, 1, "bench_noop"))


def theirs(bench, peer, tasks):
    with peer.prepared(bench) as database:
        return one_round(database, peer.engine, tasks, lambda: peer.queue(bench, database, tasks, "noop"),
                         lambda: peer.work_off(bench, database, tasks, "noop"))


# What is counted, its unit, and the most that it may be: by itself, and of what a peer has.
KINDS = {
    "postgres": (("log", "bytes of its log", "bytes", {None: 1_550, AWA: 1}),
                 ("log with the INSERT", "the same with its INSERT", "bytes", {}),
                 ("dead", "dead row versions", "rows", {None: 1.5}), ("commits", "commits", "commits", {None: 0.01})),
    "mariadb": (("log", "bytes of its log", "bytes", {}), ("log with the INSERT", "the same with its INSERT", "bytes", {}),
                ("rows", "rows that are written", "rows", {})),
    "sqlite": (("log", "bytes that the worker writes", "bytes", {}),),
}


def measure(bench, engine):
    tasks = bench.pick(40_000, 4_000)
    peers = [peer for peer in PEERS if peer.name == AWA and peer.engine == engine and bench.peers != "none"]
    # What it counts is many figures at once.
    rounds = by_turns(bench.rounds, "", [
        (WORKER, lambda: ours(bench, engine, tasks)),
        *((peer.name, lambda peer=peer: theirs(bench, peer, tasks)) for peer in peers),
    ], note=None)
    for name, what, unit, bounds in KINDS[engine]:
        mine, *others = [Figure(one.name, unit, [counts[name] for counts in one.values], one.why_not) for one in rounds]
        goals = [at_most(bound, against) for against, bound in bounds.items() if against is None or others]
        yield Line("writes", f"{TITLE}: {what}", SHOWN[engine], mine, others, goals)
