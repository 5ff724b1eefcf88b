"""Our own side of the comparisons: draining a backlog, and single processes of the program."""

import subprocess
import time

from .figures import NotThere


def drain(store, tasks, slots, program="taskqueue", words=()):
    """Tasks a second of a worker on a backlog: from its start to the last end in the tables, seen from outside."""
    started = time.time()
    work(store, slots, program, words)
    done = store.successes()
    if done != tasks:
        raise NotThere(f"{done} of {tasks} runs succeeded")
    return tasks / (store.last_end() - started)


def work(store, slots, program="taskqueue", words=()):
    """A worker until nothing waits. Before there is `work`, `process-run --drain` shows that the row works."""
    verb = ["work", "--slots", slots, "--idle-exit", "0", *words]
    if not store.bench.has_work(program):
        verb = ["process-run", "--drain", *words]
    store.run(*verb, program=program)


def name_of_worker(bench, slots, program="taskqueue"):
    """What is measured, as the table shall say it."""
    if bench.has_work(program):
        return f"work --slots {slots}"
    return "process-run --drain (no `work` yet)"


def filled_drain(bench, engine, tasks, slots, task_class="noop", program="taskqueue"):
    """The same on a fresh store, filled before."""
    with bench.store(engine) as store:
        store.fill(tasks, task_class)
        return drain(store, tasks, slots, program)


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
