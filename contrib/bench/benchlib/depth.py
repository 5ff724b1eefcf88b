"""A store with many waiting runs and several times as many finished tasks; of either by statements, as batches would take long."""

from contextlib import contextmanager

# An engine's way to count to a number.
COUNT = {
    "postgres": "SELECT n FROM generate_series(1, {n}) AS g (n)",
    "sqlite": "WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {n}) SELECT n FROM g",
    "mariadb": "SELECT seq AS n FROM seq_1_to_{n}",
    "mysql": "SELECT 1 AS n FROM information_schema.COLUMNS AS a CROSS JOIN information_schema.COLUMNS AS b LIMIT {n}",
}
# How the run ended of a task that did.
LAST_RUN = {"success": "success", "failed": "error"}
# Finished tasks at a time: a transaction of millions of rows is nobody's measure.
PART = 500_000


@contextmanager
def deep_store(bench, engine, **options):
    """The store, and words that say how deep it is."""
    waiting, finished = bench.pick(1_000_000, 10_000), bench.pick(5_000_000, 50_000)
    with bench.store(engine, **options) as store:
        bench.note(f"  {engine}: a store with {waiting:,} waiting and {finished:,} finished tasks")
        for start in range(0, finished, PART):
            add_finished(store, min(PART, finished - start))
        store.forget_runs()
        store.fill_with_runs(waiting)
        yield store, f"{waiting:,} waiting, {finished:,} finished"


def add_finished(store, tasks, status="success", failed_retries=0, error=""):
    """Tasks that ended so, each with its run."""
    count = COUNT[store.engine].format(n=tasks)
    known = store.number('COALESCE(MAX("Id"), 0)', 'FROM "TaskQueue"')
    store.sql(
        'INSERT INTO "TaskQueue" ("TaskClass", "TaskData", "LastStatus", "Attempts", "FailedRetries", "MaxRetries") '
        f"SELECT 'noop', '{{}}', '{status}', 1, {failed_retries}, 1 FROM ({count}) AS s"
    )
    store.sql(
        'INSERT INTO "TaskQueueRuns" '
        '("TaskQueueId", "TaskClass", "Status", "StartedOn", "FinishedOn", "Token", "ErrorCode", "ErrorMessage") '
        f'SELECT "Id", "TaskClass", \'{LAST_RUN[status]}\', "QueuedOn", "QueuedOn", \'x\', \'{error}\', \'{error}\' FROM "TaskQueue" '
        f'WHERE "Id" > {known} AND "LastStatus" = \'{status}\''
    )
