"""The command-line tools of the row `tools`. Each has a way to add a program that waits, and to drain so many."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from .figures import NotThere

LIMIT_SECS = 300
GATE_SECS = 10
TRUE = "/bin/true"


class Tool:
    """A tool; `queues` says whether something can wait in it, `most` how many it is asked to drain in a round."""

    name, command, note, queues, most = "", "", "", True, 5_000

    def program(self, bench):
        own = bench.home / "tools" / "bin" / self.command
        found = str(own) if own.exists() else shutil.which(self.command)
        if not found:
            raise NotThere(bench.why_missing(self.command))
        return found

    @contextmanager
    def place(self, bench):
        """A folder of its own, and an environment in which the tool keeps everything there."""
        with tempfile.TemporaryDirectory(dir=bench.scratch) as name:
            runtime = Path(name) / "run"
            runtime.mkdir(mode=0o700)
            env = {"PATH": os.environ["PATH"], "HOME": name, "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": name}
            yield Path(name), env

    def call(self, argv, env, **options):
        try:
            done = subprocess.run([str(word) for word in argv], env=env, capture_output=True, text=True,
                                  timeout=LIMIT_SECS, **options)
        except subprocess.TimeoutExpired as late:
            raise NotThere(f"not done within {LIMIT_SECS} s") from late
        if done.returncode != 0:
            raise NotThere(f"{self.command} ended with {done.returncode}: {done.stderr[:150]}")
        return done.stdout

    def add_ms(self, bench, number):
        with self.place(bench) as (place, env), self.stopped(bench, place, env):
            started = time.perf_counter()
            for _ in range(number):
                self.add(bench, place, env)
            return (time.perf_counter() - started) / number * 1000

    def drain(self, bench, number, slots):
        with self.place(bench) as (place, env), self.stopped(bench, place, env):
            for _ in range(number):
                self.add(bench, place, env)
            started = time.perf_counter()
            self.go(bench, place, env, number, slots)
            return number / (time.perf_counter() - started)


def open_gate(gate):
    """Lets the program go on that reads from it, once. Nobody may come to read any more."""
    late = time.monotonic() + GATE_SECS
    while gate.exists() and time.monotonic() < late:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            gate.unlink()
        except OSError:
            time.sleep(0.001)


class Xargs(Tool):
    name, command, queues, note = "xargs -P", "xargs", False, "no queue: a list on standard input"

    def drain(self, bench, number, slots):
        with self.place(bench) as (_, env):
            started = time.perf_counter()
            self.call([self.program(bench), "-n1", f"-P{slots}", TRUE], env, input="x\n" * number)
            return number / (time.perf_counter() - started)


class Parallel(Xargs):
    name, command, most, note = "GNU parallel", "parallel", 1_500, "no queue: a list on standard input"

    def drain(self, bench, number, slots):
        with self.place(bench) as (_, env):
            started = time.perf_counter()
            self.call([self.program(bench), "--will-cite", f"-j{slots}", TRUE], env, input="x\n" * number)
            return number / (time.perf_counter() - started)


class ParallelSql(Tool):
    name, command, most = "GNU parallel --sqlworker", "parallel", 100
    note = "in a SQLite file; adding: all at once, so that only draining is shown"
    queues = False

    def drain(self, bench, number, slots):
        with self.place(bench) as (place, env):
            table = f"sqlite3:///{quote(f'{place}/jobs.db', safe='')}/jobs"
            program = [self.program(bench), "--will-cite"]
            self.call([*program, "--sqlmaster", table, TRUE], env, input="x\n" * number)
            started = time.perf_counter()
            self.call([*program, f"-j{slots}", "--sqlworker", table, TRUE], env)
            return number / (time.perf_counter() - started)


class TaskSpooler(Tool):
    name, command, note = "task-spooler", "tsp", "in memory: a reboot loses it"

    def env(self, place, env):
        return {**env, "TS_SOCKET": str(place / "socket"), "TS_MAXFINISHED": "10"}

    @contextmanager
    def stopped(self, bench, place, env):
        # One slot is taken by a program that ends when this block says so: until then all others wait.
        gate = place / "gate"
        os.mkfifo(gate)
        self.call([self.program(bench), "-n", "cat", gate], self.env(place, env))
        try:
            yield
        finally:
            # Its server may end; what waits at the gate would stay for ever.
            open_gate(gate)
            self.call([self.program(bench), "-w"], self.env(place, env))
            self.call([self.program(bench), "-K"], self.env(place, env))

    def add(self, bench, place, env):
        self.call([self.program(bench), "-n", TRUE], self.env(place, env))

    def go(self, bench, place, env, number, slots):
        self.call([self.program(bench), "-S", slots], self.env(place, env))
        open_gate(place / "gate")
        # Without a number it waits for the last one that was added.
        self.call([self.program(bench), "-w"], self.env(place, env))


class Nq(Tool):
    name, command, most, note = "nq", "nq", 1_000, "a file each; one after the other, whatever the slots"

    @contextmanager
    def stopped(self, bench, place, env):
        gate = place / "gate"
        os.mkfifo(gate)
        self.call([self.program(bench), "-q", "cat", gate], {**env, "NQDIR": str(place / "queue")})
        try:
            yield
        finally:
            open_gate(gate)
            self.call([self.program(bench), "-w"], {**env, "NQDIR": str(place / "queue")})

    def add(self, bench, place, env):
        self.call([self.program(bench), "-q", TRUE], {**env, "NQDIR": str(place / "queue")})

    def go(self, bench, place, env, number, slots):
        open_gate(place / "gate")
        self.call([self.program(bench), "-w"], {**env, "NQDIR": str(place / "queue")})


class Pueue(Tool):
    name, command, most, note = "pueue", "pueue", 150, "its state is written as one JSON file"

    @contextmanager
    def stopped(self, bench, place, env):
        daemon = subprocess.Popen([self.program(bench) + "d"], env=env, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            self.until(lambda: subprocess.run([self.program(bench), "status"], env=env, capture_output=True).returncode == 0)
            self.call([self.program(bench), "pause"], env)
            yield
        finally:
            daemon.terminate()
            try:
                daemon.wait(timeout=GATE_SECS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def until(self, over):
        late = time.monotonic() + LIMIT_SECS
        while not over():
            if time.monotonic() > late:
                raise NotThere(f"not done within {LIMIT_SECS} s")
            time.sleep(0.02)

    def add(self, bench, place, env):
        self.call([self.program(bench), "add", TRUE], env)

    def go(self, bench, place, env, number, slots):
        self.call([self.program(bench), "parallel", slots], env)
        self.call([self.program(bench), "start"], env)
        self.until(lambda: self.is_drained(bench, env))

    def is_drained(self, bench, env):
        status = self.call([self.program(bench), "status", "--json"], env)
        return '"Queued"' not in status and '"Running"' not in status


TOOLS = [Xargs(), Parallel(), ParallelSql(), TaskSpooler(), Nq(), Pueue()]
