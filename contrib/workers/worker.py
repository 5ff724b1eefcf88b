#!/usr/bin/env python3
"""A worker in Python that is no runner of taskqueue: claims tasks of the class "checksum" one at a time, until none has
come for a while. It has only the files below DIRECTORY, and rejects tasks about others: somebody else may have them.

    TASKQUEUE_CLAIMANT=python-1 worker.py DIRECTORY [WAIT]

The address of the database stands in TASKQUEUE_DATABASE_URL, as for every command of taskqueue.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

NOTHING_CAME = 124
AWAY_OR_BUSY = (69, 75)


class Cancelled(Exception):
    """Somebody wants the run to end."""


class Lost(Exception):
    """Somebody has taken the run."""


def taskqueue(*words):
    return subprocess.run(["taskqueue", *words], stdout=subprocess.PIPE, text=True, check=False)


def tell(claimed, verb, *words):
    """Says something of the run, and looks at the answer."""
    answer = taskqueue(verb, str(claimed["run_id"]), *words, "--token", claimed["token"])
    # While the database is away or busy, nobody else has the run so far.
    if answer.returncode != 0 and answer.returncode not in AWAY_OR_BUSY:
        raise Lost
    if answer.stdout:
        raise Cancelled


def digest(claimed, file):
    """The work, in a process of its own, which is stopped when somebody wants the run to end, or has taken it. With the
    token in its environment it is ended with the run, also when this worker dies."""
    tell(claimed, "progress", "50", f"reading {file}")
    command = [sys.executable, os.path.abspath(__file__), "--digest", file]
    environment = {**os.environ, "TASKQUEUE_RUN_TOKEN": claimed["token"]}
    # A third of the time that there is, and soon enough for who cancels.
    pause = min(claimed["timeout_secs"] / 3, 5)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        while True:
            try:
                text, problem = process.communicate(timeout=pause)
                break
            except subprocess.TimeoutExpired:
                try:
                    tell(claimed, "heartbeat")
                except (Cancelled, Lost):
                    process.terminate()
                    raise
    if process.returncode != 0:
        raise OSError(problem.strip())
    return text.strip()


def work(claimed, directory):
    """The verb and the options with which the run ends."""
    data = claimed["data"]
    file = data.get("file") if isinstance(data, dict) else None
    if not isinstance(file, str) or not os.path.isabs(file):
        return ["resolve", "--error", "invalid-data", "--message", 'the data must be {"file":"/path"}', "--no-retry"]
    if os.path.commonpath([directory, file]) != directory:
        return ["release", "--reason", f"{file} is not here"]
    try:
        return ["resolve", "--results", json.dumps({"sha256": digest(claimed, file)})]
    except OSError as error:
        return ["resolve", "--error", "unreadable", "--message", str(error)]
    except Cancelled:
        return ["resolve", "--error", "cancelled", "--message", "stopped when asked to"]


def print_digest(file):
    try:
        with open(file, "rb") as content:
            print(hashlib.sha256(content.read()).hexdigest())
    except OSError as error:
        return str(error)
    return 0


def main():
    if len(sys.argv) < 2:
        print("usage: worker.py DIRECTORY [WAIT]", file=sys.stderr)
        return 2
    if sys.argv[1] == "--digest":
        return print_digest(sys.argv[2])
    directory, wait = os.path.abspath(sys.argv[1]), (sys.argv[2:] or ["30s"])[0]
    while True:
        answer = taskqueue("claim", "--class", "checksum", "--wait", wait, "--process", str(os.getpid()))
        if answer.returncode == NOTHING_CAME:
            return 0
        if answer.returncode in AWAY_OR_BUSY:
            time.sleep(5)
            continue
        if answer.returncode != 0:
            return 1
        claimed = json.loads(answer.stdout)
        try:
            verb, *options = work(claimed, directory)
        except Lost:
            continue
        # What it is told when its time was over is on standard error; somebody else has the task then.
        taskqueue(verb, str(claimed["run_id"]), "--token", claimed["token"], *options)


if __name__ == "__main__":
    sys.exit(main())
