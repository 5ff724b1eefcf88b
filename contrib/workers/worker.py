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
import threading
import time

NOTHING_CAME = 124
AWAY_OR_BUSY = (69, 75)


def taskqueue(*words):
    return subprocess.run(["taskqueue", *words], stdout=subprocess.PIPE, text=True, check=False)


def beat(claimed, done):
    """Moves the deadline while the work goes on, and stops with the first refusal."""
    while not done.wait(claimed["timeout_secs"] / 3):
        if taskqueue("heartbeat", str(claimed["run_id"]), "--token", claimed["token"]).returncode != 0:
            return


def work(claimed, directory):
    """The verb and the options with which the run ends."""
    data = claimed["data"]
    file = data.get("file") if isinstance(data, dict) else None
    if not isinstance(file, str) or not os.path.isabs(file):
        return ["resolve", "--error", "invalid-data", "--message", 'the data must be {"file":"/path"}', "--no-retry"]
    if os.path.commonpath([directory, file]) != directory:
        return ["release", "--reason", f"{file} is not here"]
    try:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(content.read())
    except OSError as error:
        return ["resolve", "--error", "unreadable", "--message", str(error)]
    return ["resolve", "--results", json.dumps({"sha256": digest.hexdigest()})]


def main():
    if len(sys.argv) < 2:
        print("usage: worker.py DIRECTORY [WAIT]", file=sys.stderr)
        return 2
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
        done = threading.Event()
        heart = threading.Thread(target=beat, args=(claimed, done))
        heart.start()
        try:
            verb, *options = work(claimed, directory)
        finally:
            done.set()
            heart.join()
        # What it is told when its time was over is on standard error; somebody else has the task then.
        taskqueue(verb, str(claimed["run_id"]), "--token", claimed["token"], *options)


if __name__ == "__main__":
    sys.exit(main())
