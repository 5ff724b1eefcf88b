"""Our own side of the comparisons: draining a backlog, workers that stay, and single processes of the program."""

import subprocess
import time
from contextlib import ExitStack, contextmanager

from .figures import NotThere

# A worker ends a little later than its last run; one that does not is killed.
END_SECS = 60
# No drain takes so long.
DRAIN_SECS = 900


def drain(store, tasks, slots, program="taskqueue", workers=1):
    """Tasks a second of workers on a backlog: from their start to the last end in the tables, seen from outside."""
    started = time.time()
    with ExitStack() as stack:
        words = ("work", "--slots", slots, "--idle-exit", "0")
        for worker in [stack.enter_context(running(store, program, *words)) for _ in range(workers)]:
            worker.must_end(started + DRAIN_SECS)
    done = store.successes()
    if done != tasks:
        raise NotThere(f"{done} of {tasks} runs succeeded")
    return tasks / (store.last_end() - started)


def work(store, slots, program="taskqueue", words=()):
    """A worker until nothing waits."""
    store.run("work", "--slots", slots, "--idle-exit", "0", *words, program=program)


def filled_drain(bench, engine, tasks, slots, task_class="noop", program="taskqueue", workers=1):
    """The drain of a fresh store that was filled before."""
    with bench.store(engine) as store:
        store.fill(tasks, task_class)
        return drain(store, tasks, slots, program, workers)


def drain_of_runs(bench, engine, tasks, slots, task_class="noop", program="taskqueue"):
    """The same where `create-runs` came before."""
    with bench.store(engine) as store:
        store.fill_with_runs(tasks, task_class)
        return drain(store, tasks, slots, program)


class Worker:
    """A program that works on a store and does not end by itself."""

    def __init__(self, process, said):
        self.process, self.pid, self._said = process, process.pid, said

    def must_live(self):
        if self.process.poll() is not None:
            raise NotThere(f"the worker ended with {self.process.returncode}: {self._said.read_text()[-200:].strip()}")

    def must_end(self, late):
        """By itself and well, before that time."""
        try:
            code = self.process.wait(timeout=max(1, late - time.time()))
        except subprocess.TimeoutExpired as still:
            raise NotThere("a worker did not end") from still
        if code:
            self.must_live()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=END_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(store, program, *words):
    """A worker as long as the block lasts, whatever ends it."""
    said = store.place / "worker.err"
    with said.open("ab") as err:
        process = subprocess.Popen(store.argv(program, *words), env=store.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=err)
    worker = Worker(process, said)
    try:
        yield worker
    finally:
        worker.stop()


def process_ms(store, *words, program="taskqueue"):
    """Milliseconds of a whole process."""
    argv = store.argv(program, *words)
    started = time.perf_counter()
    done = subprocess.run(argv, env=store.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    took = time.perf_counter() - started
    if done.returncode != 0:
        raise NotThere(f"{' '.join(map(str, words[:3]))} ended with {done.returncode}")
    return took * 1000
