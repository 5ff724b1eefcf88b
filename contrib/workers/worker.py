#!/usr/bin/env python3
"""A claimant in Python: claims tasks of the class "checksum" one at a time, until it has waited WAIT without a new task. It
processes only files below DIRECTORY and rejects tasks for other files, because another worker may have them. At TERM it
releases its run at no cost and exits.

    TASKQUEUE_CLAIMANT=python-1 worker.py DIRECTORY [WAIT]

Set the address of the database in TASKQUEUE_DATABASE_URL, as for every command of taskqueue.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

NOTHING_CAME = 124
AWAY_OR_BUSY = (69, 75)
# At no cost: the task is due at once, for every worker.
RELEASE = ["release", "--no-reject", "--reason", "the worker was stopped"]


class Cancelled(Exception):
    """The end of the run was requested."""


class Lost(Exception):
    """Another process has taken the run."""


class Stopped(Exception):
    """This worker must stop."""


class Worker:
    """Records whether this worker must stop, and the child process that it waits for and stops then."""

    def __init__(self):
        self.is_stopping = False
        self.child = None

    def stop(self, _number, _frame):
        self.is_stopping = True
        if self.child:
            self.child.terminate()

    def start(self, command, **options):
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        # The signal may have arrived just before.
        if self.is_stopping:
            self.child.terminate()
        return self.child


WORKER = Worker()


def taskqueue(*words):
    return subprocess.run(["taskqueue", *words], stdout=subprocess.PIPE, text=True, check=False)


def tell(claimed, verb, *words):
    """Reports on the run, and checks the answer."""
    answer = taskqueue(*verb.split(), str(claimed["run_id"]), *words, "--token", claimed["token"])
    # While the database is unreachable or busy, no other process has taken the run yet.
    if answer.returncode != 0 and answer.returncode not in AWAY_OR_BUSY:
        raise Lost
    if answer.stdout:
        raise Cancelled


def digest(claimed, file):
    """Does the work in a separate process, and stops it if the end of the run is requested or the run is lost. The token in
    its environment lets taskqueue end the process with the run, also if this worker dies."""
    tell(claimed, "report progress", "50", f"reading {file}")
    command = [sys.executable, os.path.abspath(__file__), "--digest", file]
    environment = {**os.environ, "TASKQUEUE_RUN_TOKEN": claimed["token"]}
    # A third of the timeout, and short enough to notice a cancel soon.
    pause = min(claimed["timeout_secs"] / 3, 5)
    with WORKER.start(command, stderr=subprocess.PIPE, env=environment) as process:
        while True:
            try:
                text, problem = process.communicate(timeout=pause)
                break
            except subprocess.TimeoutExpired:
                try:
                    tell(claimed, "worker heartbeat")
                except (Cancelled, Lost):
                    process.terminate()
                    raise
    if process.returncode != 0 and WORKER.is_stopping:
        raise Stopped
    if process.returncode != 0:
        raise OSError(problem.strip())
    return text.strip()


def work(claimed, directory):
    """Returns the verb and the options that end the run."""
    # The signal may have arrived just after the claim.
    if WORKER.is_stopping:
        return RELEASE
    data = claimed["data"]
    file = data.get("file") if isinstance(data, dict) else None
    if not isinstance(file, str) or not os.path.isabs(file):
        return ["resolve", "--error", "invalid-data", "--message", 'the data must be {"file":"/path"}', "--no-retry"]
    # A link or `..` may lead out of DIRECTORY.
    if os.path.commonpath([directory, os.path.realpath(file)]) != directory:
        return ["release", "--reason", f"{file} is not here"]
    try:
        return ["resolve", "--results", json.dumps({"sha256": digest(claimed, file)})]
    except OSError as error:
        return ["resolve", "--error", "unreadable", "--message", str(error)]
    except Cancelled:
        return ["resolve", "--error", "cancelled", "--message", "stopped when asked to"]
    except Stopped:
        return RELEASE


def print_digest(file):
    try:
        with open(file, "rb") as content:
            print(hashlib.sha256(content.read()).hexdigest())
    except OSError as error:
        return str(error)
    return 0


def pause(seconds):
    """Waits for this time, or until this worker must stop."""
    for _ in range(seconds * 10):
        if WORKER.is_stopping:
            return
        time.sleep(0.1)


def main():
    if len(sys.argv) < 2:
        print("usage: worker.py DIRECTORY [WAIT]", file=sys.stderr)
        return 2
    if sys.argv[1] == "--digest":
        return print_digest(sys.argv[2])
    directory, wait = os.path.realpath(sys.argv[1]), (sys.argv[2:] or ["30s"])[0]
    signal.signal(signal.SIGTERM, WORKER.stop)
    command = ["taskqueue", "worker", "claim", "--class", "checksum", "--wait", wait, "--process", str(os.getpid())]
    while not WORKER.is_stopping:
        with WORKER.start(command) as claim:
            line, _ = claim.communicate()
        WORKER.child = None
        if claim.returncode == NOTHING_CAME:
            return 0
        # Nothing was claimed; an early signal ends `claim` with another status.
        if claim.returncode != 0 and WORKER.is_stopping:
            return 0
        if claim.returncode in AWAY_OR_BUSY:
            pause(5)
            continue
        if claim.returncode != 0:
            return 1
        claimed = json.loads(line)
        try:
            verb, *options = work(claimed, directory)
        except Lost:
            continue
        # If the deadline has passed, another process may have the task; `taskqueue` reports this on standard error.
        taskqueue("worker", verb, str(claimed["run_id"]), "--token", claimed["token"], *options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
