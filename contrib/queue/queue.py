#!/usr/bin/env python3
"""Queues a task from Python, inside a transaction of the application's own: both are committed, or neither.

Usage: queue.py FILE CLASS JSON, where FILE is a SQLite store. With psycopg or PyMySQL the statement is the same, with %s
for the question marks and, for MySQL, without the double quotes.
"""

import contextlib
import sqlite3
import sys

path, task_class, data = sys.argv[1:]
with contextlib.closing(sqlite3.connect(path, timeout=30)) as db, db:
    # … the application's own changes …
    queued = db.execute('INSERT INTO "TaskQueue" ("TaskClass", "TaskData") VALUES (?, ?)', (task_class, data))
    print(f"queued task {queued.lastrowid}")
