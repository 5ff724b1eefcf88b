"""The web server with a million waiting tasks: pages of tasks beside the use case alone in a loop, its memory at rest and with many
streams, and queueing over HTTP beside the library. Only with --only web."""

import time

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, at_least, at_most, by_turns
from benchlib.web import serving
from rows.library import OURS
from rows.memory import resident_mb

TITLE = "the web server"
ENGINES = ("sqlite", "postgres")
# As many connections to the database as the server uses for one login.
THREADS = {"sqlite": 3, "postgres": 6}
CLIENTS = 8
STREAMS = 500
# What is asked, and how many tasks are on a page of it.
PAGES = {"the page of tasks": ("/tasks", 50), "GET /api/v1/tasks": ("/api/v1/tasks", 100)}
# About as long as the rows of the library.
TASK = '{"class":"noop","data":{"text":"' + "x" * 189 + '"}}'


def pages(bench, server, store, waiting):
    requests = bench.pick(2_000, 80)
    threads = THREADS[store.engine]
    alone_name = f"the use case alone, {threads} threads"
    for what, (path, limit) in PAGES.items():
        alone = [bench.program("bench_http"), "pages", store.url, str(requests), str(threads), str(limit)]
        contestants = [
            (f"{CLIENTS} clients", lambda path=path: server.rate(requests, CLIENTS, path)),
            (alone_name, lambda alone=alone: requests / bench.seconds(alone, env=store.env)),
        ]
        figures = by_turns(bench.rounds, "/s", contestants)
        yield Line("web", f"{what}, {waiting:,} waiting", SHOWN[store.engine], figures[0], figures[1:],
                   [at_least(0.8, alone_name)])


def memory(bench, server, engine):
    rest = resident_mb(server.pid)
    with server.streams(STREAMS, "/api/v1/events/stream"):
        time.sleep(bench.pick(10, 2))
        followed = resident_mb(server.pid)
    for when, megabytes, bound in (("at rest", rest, 15), (f"with {STREAMS} streams", followed, 100)):
        figure = Figure("taskqueue web", "MB", [megabytes])
        yield Line("web", f"the server's memory {when}", SHOWN[engine], figure, [], [at_most(bound)])


def queueing(bench, server, store):
    tasks = bench.pick(4_000, 80)
    library = [bench.program("bench_library"), store.url, str(tasks), str(CLIENTS)]
    contestants = [
        (f"over HTTP, {CLIENTS} clients", lambda: server.rate(tasks, CLIENTS, "/api/v1/tasks", TASK)),
        (OURS, lambda: tasks / bench.seconds(library, env=store.env)),
    ]
    figures = by_turns(bench.rounds, "/s", contestants)
    yield Line("web", f"queueing one by one, {CLIENTS} clients", SHOWN[store.engine], figures[0], figures[1:],
               [at_least(0.7, OURS)])


def measure(bench, engine):
    with bench.store(engine) as store, serving(bench, store) as server:
        yield from memory(bench, server, engine)
        yield from queueing(bench, server, store)
    waiting = bench.pick(1_000_000, 10_000)
    with bench.store(engine) as store:
        store.fill(waiting)
        with serving(bench, store) as server:
            yield from pages(bench, server, store, waiting)
