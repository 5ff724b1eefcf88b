"""What the peers in Python share: the command line of peers/rust/src/lib.rs, the work of a job, and the printing of moments."""

import itertools
import subprocess
import sys
import threading
import time

URL, VERB, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SETTINGS = dict(word.split("=") for word in sys.argv[4:] if "=" in word)
REST = [word for word in sys.argv[4:] if "=" not in word]
SPAWNS = REST[:1] == ["true"]

_counter = itertools.count(1)
all_done = threading.Event()


def setting(key, default):
    return int(SETTINGS.get(key, default))


def clients():
    return int(REST[0]) if REST else 1


def counted():
    """To be called when the work of a job is done."""
    if next(_counter) >= COUNT:
        all_done.set()


def start_program():
    """No pipes: the peers do not keep what a program prints."""
    subprocess.run(["/bin/true"], check=True)


def say_now():
    print(f"{time.time():.6f}", flush=True)


class Seconds:
    """Prints how long the block took."""

    def __enter__(self):
        self.started = time.perf_counter()

    def __exit__(self, *_):
        print(f"{time.perf_counter() - self.started:.6f}", flush=True)
