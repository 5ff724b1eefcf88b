"""Where things are and how they are started: the one object that every row is given."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .figures import NotThere
from .stores import Store

ENGINES = ("sqlite", "postgres", "mariadb")
SHOWN = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}


class Bench:
    def __init__(self, home, target, quick, peers):
        self.home = Path(home)
        self.target = Path(target) / "release"
        self.source = Path(__file__).resolve().parents[3]
        self.quick = quick
        self.peers = peers
        self.scratch = self.home / "scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.servers = {engine: os.environ.get(f"TASKQUEUE_TEST_{engine.upper()}_URL") for engine in ENGINES}
        self._has_work = {}

    @property
    def rounds(self):
        return 2 if self.quick else 5

    def pick(self, full, quick):
        """A number for a full run, and one for a look."""
        return quick if self.quick else full

    def note(self, text):
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)

    def program(self, name):
        """The path of a program that was built, or the reason why there is none."""
        path = self.target / name
        if not path.exists():
            raise NotThere(self.why_missing(name))
        return str(path)

    def why_missing(self, name):
        told = self.home / "missing" / name
        return told.read_text().strip() if told.exists() else f"{name} is not installed"

    def store(self, engine, **options):
        """An empty store of ours. To be used in `with`, at whose end it is dropped."""
        return Store(self, engine, **options)

    def server(self, engine):
        url = self.servers[engine]
        if not url:
            raise NotThere(f"no {SHOWN[engine]} server runs")
        return url

    def has_work(self, program):
        """Whether this build has the long-running runner."""
        if program not in self._has_work:
            shown = subprocess.run([self.program(program), "work", "--help"], capture_output=True)
            self._has_work[program] = shown.returncode == 0
        return self._has_work[program]

    def seconds(self, argv, **options):
        """What a program of the harness prints: the seconds that it measured. Without a word about why, it failed."""
        done = subprocess.run(argv, capture_output=True, text=True, **options)
        if done.returncode != 0:
            raise NotThere(last_words(done))
        return float(done.stdout.split()[-1])

    def limit(self, *words):
        return self.seconds([self.program("bench_limits"), *map(str, words)])


def last_words(done):
    """Why a program failed, in one line."""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    helpful = [line for line in lines if "error" in line.lower() or "panicked" in line] or lines
    where = Path(done.args[0]).name
    return f"{where}: {' '.join(helpful[-2:])[:200] or f'exit status {done.returncode}'}"
