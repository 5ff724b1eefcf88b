"""Where things are and how they are started: the one object that every row is given."""

import os
import shutil
import time
from pathlib import Path

from .figures import NotThere, say
from .programs import output
from .stores import Store

ENGINES = ("sqlite", "postgres", "mariadb")
# Its server runs only for the rows that ask for it: what idles beside a measurement is measured, too.
ALL_ENGINES = (*ENGINES, "mysql")
SHOWN = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}


class Bench:
    def __init__(self, home, target, quick, peers, before):
        self.home = Path(home)
        self.target = Path(target) / "release"
        self.source = Path(__file__).resolve().parents[3]
        self.quick = quick
        self.peers = peers
        self.before = before
        self.scratch = self.home / "scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.servers = {engine: os.environ.get(f"TASKQUEUE_TEST_{engine.upper()}_URL") for engine in ALL_ENGINES}

    @property
    def rounds(self):
        return 2 if self.quick else 3

    def pick(self, full, quick):
        """A number for a full run, and one for a look."""
        return quick if self.quick else full

    def note(self, text):
        say(f"{time.strftime('%H:%M:%S')} {text}")

    def program(self, name):
        """The path of a program that was built, or the reason why there is none. An absolute path stays as it is."""
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

    def seconds(self, argv, env=None):
        """What a program of the harness prints: the seconds that it measured."""
        return float(output(argv, env).split()[-1])

    def limits(self, *words):
        """What a verb of `bench_limits` prints."""
        return output([self.program("bench_limits"), *map(str, words)])

    def limit(self, *words):
        """The seconds that it took."""
        return float(self.limits(*words).split()[-1])
