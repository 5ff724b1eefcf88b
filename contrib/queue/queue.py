#!/usr/bin/env python3
"""Queues a task from Python inside a transaction of the application: both are committed, or neither.

Usage: queue.py FILE CLASS JSON, where FILE is a SQLite store. A connection of psycopg or PyMySQL works the same way.
"""

import contextlib
import json
import sqlite3
import sys

from taskqueue_queue import queue_in

if len(sys.argv) != 4:
    print("usage: queue.py FILE CLASS JSON", file=sys.stderr)
    sys.exit(2)
path, task_class, data = sys.argv[1:]
with contextlib.closing(sqlite3.connect(path, timeout=30)) as db, db:
    # … the application's own changes …
    print(f"queued task {queue_in(db, task_class, json.loads(data))}")
