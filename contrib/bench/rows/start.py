"""Commands of the program beside an earlier one, each on a store of its own, and the size of both. Only with --only start and
--before PROGRAM."""

import os
import shutil

from benchlib.context import SHOWN
from benchlib.figures import Figure, Line, at_most, by_turns
from benchlib.ours import process_ms

TITLE = "a command and the executable, beside an earlier program"
ENGINES = ("sqlite",)
NOW, BEFORE = "this program", "the earlier program"
VERBS = (("--version",), ("status",), ("queue", "noop"))
MORE_MB = 3


def copied(bench, name, copy):
    """A copy. What a linker has just written lies in memory in more pieces, which alone makes a start slower."""
    return shutil.copy2(bench.program(name), bench.scratch / copy)


def measure(bench, engine):
    programs = {NOW: copied(bench, "taskqueue", "now"), BEFORE: copied(bench, bench.before, "before")}
    with bench.store(engine) as ours, bench.store(engine, program=programs[BEFORE]) as theirs:
        for verb in VERBS:
            contestants = [
                (NOW, lambda verb=verb: process_ms(ours, *verb, program=programs[NOW])),
                (BEFORE, lambda verb=verb: process_ms(theirs, *verb, program=programs[BEFORE])),
            ]
            now, before = by_turns(bench.pick(301, 5), "ms", contestants, note=None)
            yield Line("start", f"`{' '.join(verb)}`, whole process", SHOWN[engine], now, [before], [at_most(1.02, BEFORE)])
    now, before = (Figure(name, "MB", [os.path.getsize(path) / 1e6]) for name, path in programs.items())
    yield Line("start", "size of the executable", "", now, [before], [at_most(before.median + MORE_MB)])
