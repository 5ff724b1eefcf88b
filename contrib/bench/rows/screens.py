"""What operators look at, with a million waiting, five million finished and some thousand failed tasks: whole processes, and
pages of the web server over one connection, on every engine. Only with --only screens."""

import time

from benchlib import context
from benchlib.context import SHOWN
from benchlib.depth import add_finished, deep_store
from benchlib.figures import Line, at_most, by_turns
from benchlib.ours import process_ms
from benchlib.web import serving

TITLE = "what operators look at"
ENGINES = context.ALL_ENGINES
# A tag of every tenth task that waits, as a large customer has.
TAG = "account-17"
SCREENS = (
    ("status",),
    ("status", "--class", "noop"),
    ("status", f"tag={TAG}"),
    ("explain", "last"),
    ("explain",),
    ("failures",),
    ("top", "--once"),
    ("metrics",),
)
ERRORS = ("exit:1", "exit:75", "signal:11", "exit:65")
TALK = '[class.talk]\nargv = ["/bin/seq", "2000"]\n'
SCHEDULES = 100
PAGES = {
    "/": "/",
    "/tasks": "/tasks",
    "/tasks?q=status=due": "/tasks?q=status%3Ddue",
    "/tasks?q=status=waiting": "/tasks?q=status%3Dwaiting",
    "/tasks?q=status=failed": "/tasks?q=status%3Dfailed",
    "/tasks?q=status=success": "/tasks?q=status%3Dsuccess",
    "/tasks?q=class=noop": "/tasks?q=class%3Dnoop",
    "/tasks?q=class=noop+status=scheduled": "/tasks?q=class%3Dnoop+status%3Dscheduled",
    f"/tasks?q=tag={TAG}": f"/tasks?q=tag%3D{TAG}",
    "/tasks/ID, waiting": "/tasks/{waiting}",
    "/tasks/ID, failed": "/tasks/{failed}",
    "/tasks/ID, with a log": "/tasks/{talked}",
    "/tasks/ID/log, 2,000 lines": "/tasks/{talked}/log",
    "/failures": "/failures",
    "/schedules": "/schedules",
    "/runners": "/runners",
    "/classes": "/classes",
    "/classes?name=noop": "/classes?name=noop",
    "/events": "/events",
    "/settings": "/settings",
    "/api/v1/tasks": "/api/v1/tasks",
}
# The server keeps the figures of the first page for less than this.
FIGURES_SECS = 0.5
GOAL = at_most(150)


def verbs(bench, store, about):
    for verb in SCREENS:
        shown = by_turns(bench.pick(11, 3), "ms", [(verb[0], lambda: process_ms(store, *verb))], note=None)
        yield Line("screens", f"`{' '.join(verb)}`, {about}", SHOWN[store.engine], shown[0], [], [GOAL])


def ids_of_tasks(store):
    """One of each kind that has a page of its own; a handler has written the log of one."""
    schedules = store.place / "schedules.ndjson"
    schedules.write_text('{"class":"noop","every":"1d","in":"1d"}\n' * SCHEDULES)
    store.run("queue", "--batch", schedules)
    talked = store.run("queue", "talk").strip()
    store.run("create-runs")
    store.run("process-run", store.number('MAX("Id")', f'FROM "TaskQueueRuns" WHERE "TaskQueueId" = {talked}'))
    failed = store.number('MAX("Id")', """FROM "TaskQueue" WHERE "LastStatus" = 'failed'""")
    waiting = store.number('MAX("TaskQueueId")', 'FROM "TaskQueueRuns" WHERE "StartedOn" IS NULL')
    return {"talked": talked, "failed": failed, "waiting": waiting}


def page_ms(server, connection, path):
    if path == "/":
        time.sleep(FIGURES_SECS)
    started = time.perf_counter()
    server.get(connection, path)
    return (time.perf_counter() - started) * 1000


def pages(bench, store, about):
    ids = ids_of_tasks(store)
    with serving(bench, store) as server, server.connect() as connection:
        contestants = [(name, lambda path=path.format(**ids): page_ms(server, connection, path)) for name, path in PAGES.items()]
        figures = by_turns(bench.pick(11, 3), "ms", contestants, note=None)
    for figure in figures:
        yield Line("screens", f"`GET {figure.name}`, {about}", SHOWN[store.engine], figure, [], [GOAL])
    slowest = max((figure for figure in figures if figure.values), key=lambda figure: figure.median)
    yield Line("screens", f"the slowest page, {about}", SHOWN[store.engine], slowest)


def measure(bench, engine):
    failed = bench.pick(5_000, 500)
    with deep_store(bench, engine, classes=TALK) as (store, words):
        for error in ERRORS:
            add_finished(store, failed, "failed", 1, error)
        store.sql(f"""UPDATE "TaskQueue" SET "Tag" = '{TAG}' WHERE "Id" % 10 = 0 AND "LastStatus" NOT IN ('success', 'failed')""")
        store.analyze()
        about = f"{words}, {len(ERRORS) * failed:,} failed"
        yield from verbs(bench, store, about)
        yield from pages(bench, store, about)
