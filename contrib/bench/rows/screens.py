"""What operators look at, with a million waiting, five million finished and some thousand failed tasks: whole processes, on every
engine. Only with --only screens."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.depth import add_finished, deep_store
from benchlib.figures import Line, at_most, by_turns
from benchlib.ours import process_ms

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


def measure(bench, engine):
    failed = bench.pick(5_000, 500)
    with deep_store(bench, engine) as (store, words):
        for error in ERRORS:
            add_finished(store, failed, "failed", 1, error)
        store.sql(f"""UPDATE "TaskQueue" SET "Tag" = '{TAG}' WHERE "Id" % 10 = 0 AND "LastStatus" NOT IN ('success', 'failed')""")
        store.analyze()
        for verb in SCREENS:
            shown = by_turns(bench.pick(11, 3), "ms", [(verb[0], lambda: process_ms(store, *verb))], note=None)
            what = f"`{' '.join(verb)}`, {words}, {len(ERRORS) * failed:,} failed"
            yield Line("screens", what, SHOWN[engine], shown[0], [], [at_most(150)])
