"""Handlers that do nothing, in Python, PHP and Node, kept running as coprocesses; PostgreSQL. Two workers, as for the classes
that are in process: one claims and records while the other waits for the server."""

import json
import shutil
import sys
from pathlib import Path

from benchlib.context import SHOWN
from benchlib.figures import Line, NotThere, at_least, by_turns
from benchlib.ours import drain

TITLE = "no-op handlers as coprocesses"
ENGINES = ("postgres",)
HANDLERS = Path(__file__).resolve().parents[1] / "coprocess"
WORKERS = 2
# More slots than cores: a coprocess is given several runs at once, and answers in its own time.
SLOTS = 16
LANGUAGES = {"Python": (sys.executable, "noop.py"), "PHP": ("php", "noop.php"), "Node": ("node", "noop.js")}


def one(bench, engine, command, file, tasks):
    found = shutil.which(command)
    if not found:
        raise NotThere(f"no {command} here")
    argv = json.dumps([str(Path(found).resolve()), str(HANDLERS / file)])
    classes = f'[class.handler]\nargv = {argv}\nprotocol = "coprocess"\n'
    # The source tree stays as it is.
    classes += 'env = { PYTHONDONTWRITEBYTECODE = "1" }\n'
    with bench.store(engine, classes=classes) as store:
        store.run("setting", "set", "TaskQueueRunnerLimit", WORKERS * SLOTS)
        store.fill(tasks, "handler")
        return drain(store, tasks, SLOTS, workers=WORKERS)


def measure(bench, engine):
    tasks = bench.pick(50_000, 2_000)
    lines = []
    for language, (command, file) in LANGUAGES.items():
        work = lambda command=command, file=file: one(bench, engine, command, file, tasks)
        figures = by_turns(bench.rounds, "/s", [(f"{WORKERS} work --slots {SLOTS}, {language}", work)])
        lines.append(Line("coprocess", f"{TITLE}, {language}", SHOWN[engine], figures[0], [], [at_least(15_000)]))
    return lines
