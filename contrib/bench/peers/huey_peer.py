"""huey on SQLite, with fsync switched on (it is off by default), and its consumer with threads. It keeps no job that is done."""

import logging
import os
import time

from huey import SqliteHuey

import py_bench as bench

logging.disable(logging.CRITICAL)
huey = SqliteHuey("bench", filename=bench.URL.removeprefix("sqlite://"), fsync=True, results=False)


@huey.task()
def noop(number):
    bench.counted()


@huey.task()
def spawn(number):
    bench.start_program()
    bench.counted()


def add():
    task = spawn if bench.VERB == "fill" and bench.SPAWNS else noop
    with bench.Seconds():
        for number in range(bench.COUNT):
            task(number)


def drain():
    consumer = huey.create_consumer(workers=bench.setting("jobs", 1), periodic=False, initial_delay=0.01, max_delay=0.05)
    consumer.start()
    bench.all_done.wait()
    while huey.storage.queue_size():
        time.sleep(0.001)
    bench.say_now()


{"setup": lambda: None, "fill": add, "add": add, "drain": drain}[bench.VERB]()
os._exit(0)
