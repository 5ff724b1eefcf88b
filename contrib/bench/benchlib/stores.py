"""Databases of the benchmark's own: made empty, filled, asked, dropped. Asked through the harness, which has the same clients."""

import itertools
import json
import os
import shutil
from datetime import datetime, timezone

from .figures import NotThere
from .programs import output

_numbers = itertools.count(1)

# A moment as text in UTC, by whatever name the engine has for that.
MOMENT = {
    "sqlite": "{}",
    "postgres": "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')",
    "mariadb": "DATE_FORMAT({}, '%Y-%m-%dT%H:%i:%s.%f')",
    "mysql": "DATE_FORMAT({}, '%Y-%m-%dT%H:%i:%s.%f')",
}


def epoch(text):
    """Seconds since 1970 of a time in UTC as a database writes it."""
    text = text.strip().removesuffix("Z").removesuffix("+00:00").replace(" ", "T")
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


class Database:
    """An empty database on one engine, for whoever needs one."""

    def __init__(self, bench, engine):
        self.bench, self.engine = bench, engine
        self.name = f"bench_{os.getpid()}_{next(_numbers)}"
        self.place = bench.scratch / self.name
        self.place.mkdir()
        if engine == "sqlite":
            self.url = f"sqlite://{self.place}/tasks.db"
        else:
            self._server = bench.server(engine)
            self.url = f"{self._server.rsplit('/', 1)[0]}/{self.name}"
            self.bench.limits("sql", self._server, f'CREATE DATABASE "{self.name}"')

    def sql(self, statement):
        self.bench.limits("sql", self.url, statement)

    def ask(self, question):
        """The column `value` of every row, as text."""
        return self.bench.limits("ask", self.url, question).splitlines()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.engine != "sqlite":
            self._drop()
        shutil.rmtree(self.place, ignore_errors=True)

    def _drop(self):
        """PostgreSQL lets nobody but a superuser end its own autovacuum by force, and ends it by itself where nobody asks for
        force. What was measured counts, whether the database can be dropped or not."""
        ways = ["", " WITH (FORCE)", "", " WITH (FORCE)"] if self.engine == "postgres" else [""]
        for way in ways:
            try:
                return self.bench.limits("sql", self._server, f'DROP DATABASE "{self.name}"{way}')
            except NotThere as refused:
                problem = refused
        self.bench.note(f"{self.name} stays: {problem}")


class Store(Database):
    """A store of taskqueue with its own configuration, migrated by this program."""

    def __init__(self, bench, engine, classes="", program="taskqueue"):
        super().__init__(bench, engine)
        self._before = 0
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place),
            "XDG_STATE_HOME": str(self.place / "state"),
            "TASKQUEUE_DATABASE_URL": self.url,
            "TASKQUEUE_CONFIG": str(self.place / "config.toml"),
        }
        stamp = json.dumps([str(bench.target / "bench_limits"), "stamp"])
        user = 'user = "root"\n' if os.geteuid() == 0 else ""
        config = f'{user}[class."true"]\nargv = ["/bin/true"]\n[class.noop]\nargv = ["/bin/true"]\n'
        (self.place / "config.toml").write_text(f"{config}[class.stamp]\nargv = {stamp}\n{classes}")
        os.chmod(self.place / "config.toml", 0o600)
        self.run("db", "migrate", program=program)

    def run(self, *words, program="taskqueue"):
        """What the program prints with this store."""
        return output(self.argv(program, *words), self.env)

    def argv(self, program, *words):
        return [self.bench.program(program), *map(str, words)]

    def fill(self, tasks, task_class="noop", data_bytes=0):
        """So many tasks that are due, for a worker that creates their runs as it starts them."""
        self.run("queue", "--batch", self.batch_file(tasks, task_class, data_bytes))
        self.analyze()

    def fill_with_runs(self, tasks, task_class="noop"):
        """The same, each with a run that waits."""
        self.run("queue", "--batch", self.batch_file(tasks, task_class))
        self.run("create-runs")
        self.analyze()

    def batch_file(self, tasks, task_class, data_bytes=0):
        """The same rows as `bench_limits bulk` writes, with so many bytes more of data each."""
        path = self.bench.scratch / f"batch-{task_class}-{tasks}-{data_bytes}.ndjson"
        if not path.exists():
            more = f',"text":"{"x" * data_bytes}"' if data_bytes else ""
            with path.open("w") as out:
                for n in range(tasks):
                    data = f'{{"to":"user{n}@example.org","template":{n % 17}{more}}}'
                    out.write(f'{{"class":"{task_class}","data":{data}}}\n')
        return path

    def analyze(self):
        """What the servers do by themselves after a while."""
        if self.engine == "postgres":
            self.sql('VACUUM ANALYZE "TaskQueue"')
            self.sql('VACUUM ANALYZE "TaskQueueRuns"')
        elif self.engine in ("mariadb", "mysql"):
            self.sql('ANALYZE TABLE "TaskQueue", "TaskQueueRuns"')

    def forget_runs(self):
        """Counts no run that is there by now: a look at millions takes its time."""
        self._before = self.number('COALESCE(MAX("Id"), 0)', 'FROM "TaskQueueRuns"')

    def number(self, value, where):
        return int(self.ask(f"SELECT CAST({value} AS char(20)) AS value {where}")[0])

    def moments(self, column, where):
        """In seconds since 1970."""
        return [epoch(text) for text in self.ask(f"SELECT {MOMENT[self.engine].format(column)} AS value {where}")]

    def successes(self, condition=""):
        where = f"""WHERE "Id" > {self._before} AND "Status" = 'success' {condition}"""
        return self.number("COUNT(*)", f'FROM "TaskQueueRuns" {where}')

    def last_end(self):
        return self.moments('MAX("FinishedOn")', f'FROM "TaskQueueRuns" WHERE "Id" > {self._before}')[0]
