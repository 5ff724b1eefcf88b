"""What people cost who watch the first page live while a task is queued each second: many beside a few, with a million waiting
tasks. And the time from a line that a handler writes to the page of its log. Only with --only live."""

import json
import re
import sys
import time
from pathlib import Path

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, NotThere, at_most, missing
from benchlib.ours import running
from benchlib.web import LEAST_LOG_SECS, has_changed, serving
from rows.memory import core_secs

TITLE = "people who watch, and the log of a running attempt"
ENGINES = ("sqlite", "postgres")
WATCHERS = {50: "50 people", 5: "5 people", 0: "0 people"}
# The cost does not depend on how many watch. One measurement differs from the next by less than this.
SAME = at_most(1.2, WATCHERS[5])
KINDS = (
    ("the database's processor time", "% of a core", [SAME]),
    ("the server's processor time", "% of a core", []),
    ("commits", "commits a second", [SAME]),
)
SETTLE_SECS = 3
# The times between lines vary, so that they are not in step with a poll.
CLOCK = """import time
for n in range(600):
    print(f"printed at {time.monotonic():.6f}", flush=True)
    time.sleep(0.4 + 0.0071 * (n % 29))
"""
LOG_MS = 300
# The handler's runner does not know yet that the page was opened when the first line is written.
LINES = ("median", "worst", "the first line after the page was opened")
LOG_SECS = 30


def parts_of_database(server, store):
    """The sessions of the server in the database, or its threads that call SQLite, as paths below /proc."""
    # Then all of its threads are connected, and no other process is.
    server.rate(80, 8, "/api/v1/tasks")
    if store.engine == "sqlite":
        threads = Path(f"/proc/{server.pid}/task").iterdir()
        return [f"{server.pid}/task/{thread.name}" for thread in threads if (thread / "comm").read_text().startswith("database ")]
    return store.ask("SELECT CAST(pid AS text) AS value FROM pg_stat_activity WHERE datname = current_database() "
                     "AND backend_type = 'client backend' AND pid <> pg_backend_pid()")


def costs(server, store, parts):
    """In the order of `KINDS`, since the processes began. SQLite counts no commits."""
    database, server_only = (100 * sum(map(core_secs, pids)) for pids in (parts, [server.pid]))
    if store.engine == "sqlite":
        return database, server_only
    commits = store.number("xact_commit", "FROM pg_stat_database WHERE datname = current_database()")
    return database, server_only, commits


def cost_of(bench, server, store, parts, people):
    """The same for a second."""
    with server.watchers(people):
        time.sleep(SETTLE_SECS)
        before, started = costs(server, store, parts), time.monotonic()
        for second in range(1, bench.pick(30, 4) + 1):
            store.run("queue", "noop")
            time.sleep(max(0, started + second - time.monotonic()))
        after, took = costs(server, store, parts), time.monotonic() - started
    return [(late - early) / took for early, late in zip(before, after)]


def watching(bench, engine):
    waiting = bench.pick(1_000_000, 10_000)
    with bench.store(engine) as store:
        store.fill(waiting)
        with serving(bench, store) as server:
            # The first page has the figures of a whole day read, once.
            with server.watchers(1):
                time.sleep(bench.pick(30, 8))
            parts = parts_of_database(server, store)
            found = {people: [] for people in WATCHERS}
            for turn in range(bench.rounds):
                for people in list(WATCHERS)[:: -1 if turn % 2 else 1]:
                    found[people].append(cost_of(bench, server, store, parts, people))
                    bench.note(f"    {WATCHERS[people]}: {found[people][-1]}")
    # An engine that does not count commits has one kind less.
    for (what, unit, goals), values in zip(KINDS, zip(*(zip(*found[people]) for people in WATCHERS))):
        ours, *others = [Figure(name, unit, list(rounds)) for name, rounds in zip(WATCHERS.values(), values)]
        yield Line("live", f"{what} while people watch, {waiting:,} waiting", SHOWN[engine], ours, others, goals)


def running_attempt(store):
    late = time.monotonic() + LOG_SECS
    where = """FROM "TaskQueueRuns" WHERE "Status" = 'processing'"""
    while not (run := store.number('COALESCE(MAX("Id"), 0)', where)):
        if time.monotonic() > late:
            raise NotThere(f"the handler was not started within {LOG_SECS} s")
        time.sleep(0.1)
    return run


def log_ms(bench, engine):
    """Milliseconds from each line that a handler writes to the page that has it, which is loaded when the log has grown."""
    clock = f'[class.clock]\nargv = {json.dumps([sys.executable, "-c", CLOCK])}\n'
    with bench.store(engine, classes=clock) as store, running(store, "taskqueue", "work", "--slots", 1), \
            serving(bench, store) as server:
        task = store.run("queue", "clock").strip()
        try:
            return lines_ms(server, f"/tasks/{task}/log?run={running_attempt(store)}", bench.pick(31, 5))
        finally:
            store.run("cancel", task)


def lines_ms(server, log, lines):
    """As the script of the page does."""
    found = []
    with server.connect() as connection:
        address = re.search(rb'<main[^>]* data-stream="([^"]+)"', server.get(connection, log))
        if not address:
            raise NotThere("the page of the log names no stream")
        with server.streams(1, address.group(1).decode()) as (stream,):
            seen = loaded = time.monotonic()
            while len(found) < lines:
                if not has_changed(stream, LOG_SECS):
                    raise NotThere(f"the log has not grown for {LOG_SECS} s")
                time.sleep(max(0, loaded + LEAST_LOG_SECS - time.monotonic()))
                loaded = time.monotonic()
                page = server.get(connection, log).decode()
                now = time.monotonic()
                printed = [at for at in map(float, re.findall(r"printed at ([0-9.]+)", page)) if at > seen]
                found += [(now - at) * 1000 for at in printed]
                seen = max([seen, *printed])
    return found


def measure(bench, engine):
    what = "from a handler's line to the page of its log"
    try:
        first, *values = log_ms(bench, engine)
        figures = [Figure(name, "ms", found) for name, found in zip(LINES, (values, [max(values)], [first]))]
    except NotThere as why:
        figures = [missing(name, "ms", str(why)) for name in LINES]
    for figure in figures:
        yield Line("live", f"{what}, {figure.name}", SHOWN[engine], figure, [], [at_most(LOG_MS)])
    yield from watching(bench, engine)
