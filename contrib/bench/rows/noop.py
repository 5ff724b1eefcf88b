"""Tasks that do nothing, in process: a program built on the library, beside the peers at their best settings. A server has
two workers of one slot, which claim and record beside each other; SQLite lets one write at a time, and has one."""

from benchlib import context
from benchlib.context import SHOWN
from benchlib.figures import Line, at_least, by_turns
from benchlib.ours import drain_of_runs, filled_drain
from benchlib.peers import APALIS, AWA, GRAPHILE, PG_BOSS, contestants

TITLE = "no-op tasks in process"
ENGINES = context.ENGINES
# Tasks of a round: so many that the start of the worker does not count.
TASKS = {"sqlite": (200_000, 3_000), "postgres": (100_000, 3_000), "mariadb": (50_000, 2_000)}
TIMES_THE_PEER = {GRAPHILE: 0.75, APALIS: 3.5, PG_BOSS: 1.8, AWA: 3.5}
# What one process of ours is to reach, as awa is one.
ALONE = "work --slots 1"
ALONE_TIMES_AWA = 2


def measure(bench, engine):
    tasks = bench.pick(*TASKS[engine])
    one = (ALONE, lambda: filled_drain(bench, engine, tasks, 1, "noop", "bench_noop"))
    two = ("2 work --slots 1", lambda: filled_drain(bench, engine, tasks, 1, "noop", "bench_noop", workers=2))
    figures = by_turns(bench.rounds, "/s", [
        *([one] if engine == "sqlite" else [two, one]),
        ("work --slots 1, after create-runs", lambda: drain_of_runs(bench, engine, tasks, 1, "noop", "bench_noop")),
        *contestants(bench, engine, bench.pick(2, 0.1), "noop"),
    ])
    named = [figure.name for figure in figures]
    goals = [at_least(times, peer) for peer, times in TIMES_THE_PEER.items() if peer in named]
    return [Line("noop", TITLE, SHOWN[engine], figures[0], figures[1:], goals), *alone(figures, engine)]


def alone(figures, engine):
    """One process beside awa, of the figures that are there."""
    named = {figure.name: figure for figure in figures}
    if AWA in named:
        what = f"{TITLE}, one process"
        yield Line("noop", what, SHOWN[engine], named[ALONE], [named[AWA]], [at_least(ALONE_TIMES_AWA, AWA)])
