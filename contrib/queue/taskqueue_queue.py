"""Queues tasks from Python: with the program, or inside a transaction of your application.

    from taskqueue_queue import QueueError, queue, queue_in

    task_id = queue("mail.send", {"to": "ann@example.org"}, unique="welcome-17", delay=600, priority=5)

    with connection:                     # sqlite3, psycopg, psycopg2, PyMySQL, mysqlclient, mysql.connector or mariadb
        connection.execute("UPDATE orders SET status = 'paid' WHERE id = 17")
        task_id = queue_in(connection, "invoice.make", {"order": 17})

`queue` checks the class, the data and the options as `taskqueue queue` does, and raises a QueueError if it refuses them.
`queue_in` writes one row, which exists if and only if the transaction is committed; it does not check that the class has a
handler. This is one file without dependencies: copy it into the application. For more, see
docs/handlers.md#queueing-from-a-program.

With `unique` on MariaDB 11.6 or newer, execute `SET SESSION innodb_snapshot_isolation = OFF` first if the transaction is
REPEATABLE READ (docs/several-hosts-mysql.md#settings-of-the-server).
"""

import json
import subprocess
import sys


class QueueError(Exception):
    """Nothing was queued. `status` is the exit status of the program or its equivalent, `code` the kind of error, `hint` how
    to fix it, or None."""

    def __init__(self, message, status, code=None, hint=None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.hint = hint


def queue(task_class, data=None, program="taskqueue", **options):
    """Queues a task and returns its id. If another task already has the `unique` key, returns the id of that task.

    The options are those of `taskqueue queue`, with underscores: unique, on_conflict, unique_for, priority, at, max_retries,
    timeout, expires, after, after_any, limit_key, any_class, database and so on; `delay` is --in. Numbers for times are
    seconds. An option that may be given more than once is a list; meta may be a dict. Not supported: run and wait, which return
    the exit status of the handler, and batch, which returns several ids.
    """
    arguments = [program, "queue", "--json"]
    for name, value in options.items():
        arguments += _option("in" if name == "delay" else name.replace("_", "-"), value)
    # Passes the data on standard input: an argument could be too long, and every user can read it.
    arguments += ["--", task_class, "-"]
    text = json.dumps({} if data is None else data, allow_nan=False)
    try:
        ended = subprocess.run(arguments, input=text, capture_output=True, encoding="utf-8", check=False)
    except OSError as error:
        raise QueueError(f"{program} cannot be started: {error.strerror}", 127) from error
    if ended.returncode != 0:
        raise _error_of(ended)
    return json.loads(ended.stdout)["id"]


def queue_in(connection, task_class, data=None, unique=None, delay=None, priority=0, expires=None):
    """Queues a task over this DB-API connection, in its transaction, and returns the id. If another task already has the `unique`
    key, returns the id of that task. `delay` is in seconds, and so is `expires`: the task must start within this time after the
    delay."""
    engine, mark = _dialect(connection)
    columns, values = ["TaskClass", "TaskData", "Priority"], [mark] * 3
    parameters = [task_class, json.dumps({} if data is None else data, allow_nan=False), priority]
    if delay is not None:
        columns.append("ScheduledOn")
        values.append(_LATER[engine].format(mark))
        parameters.append(float(delay) if engine == "postgres" else int(delay))
    if expires is not None:
        columns.append("StartBefore")
        values.append(_LATER[engine].format(mark))
        parameters.append((float if engine == "postgres" else int)((delay or 0) + expires))
    if unique is not None:
        columns.append("UniqueKey")
        values.append(mark)
        parameters.append(unique)
    quote = "" if engine == "mysql" else '"'
    names = ", ".join(f"{quote}{name}{quote}" for name in columns)
    insert = f"INSERT INTO {quote}TaskQueue{quote} ({names}) VALUES ({', '.join(values)})"
    cursor = connection.cursor()
    if unique is None:
        cursor.execute(insert + _RETURNING[engine], parameters)
        return _id_of(cursor, engine)
    has_key = "WHERE {0}TaskClass{0} = {1} AND {0}LiveUniqueKey{0} = {1}".format(quote, mark)
    # The index does not detect that the time for which a key is kept has passed.
    is_over = f"AND {quote}UniqueUntil{quote} <= {_NOW[engine]}"
    cursor.execute(
        f"UPDATE {quote}TaskQueue{quote} SET {quote}UniqueUntil{quote} = NULL {has_key} {is_over}", [task_class, unique]
    )
    for _ in range(2):
        try:
            cursor.execute(insert + _UNLESS_THERE[engine] + _RETURNING[engine], parameters)
            # Without a transaction, the new task may have ended by now, and has no key then.
            task_id = _id_of(cursor, engine)
            if task_id is not None:
                return task_id
        except Exception as error:
            if engine != "mysql" or _DUPLICATE not in (getattr(error, "errno", None), *error.args[:1]):
                raise
        cursor.execute(f"SELECT {quote}Id{quote} FROM {quote}TaskQueue{quote} {has_key}{_LATEST[engine]}", [task_class, unique])
        row = cursor.fetchone()
        if row is not None:
            return _value_of(row)
        # The task that had the key has ended meanwhile.
    raise QueueError(f'the key "{unique}" was taken and given up again, twice; nothing was queued', 1)


# Uses the clock of the database.
_NOW = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    "postgres": "clock_timestamp()",
    "mysql": "UTC_TIMESTAMP(6)",
}
_LATER = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now', {} || ' seconds')",
    "postgres": "clock_timestamp() + {} * interval '1 second'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL {} SECOND",
}
# On MySQL, the INSERT fails with this error if another task has the key. MariaDB permits ON DUPLICATE KEY UPDATE only to users
# who may update all inserted columns, and IGNORE would shorten values.
_DUPLICATE = 1062
_UNLESS_THERE = {"sqlite": " ON CONFLICT DO NOTHING", "postgres": " ON CONFLICT DO NOTHING", "mysql": ""}
_RETURNING = {"sqlite": "", "postgres": ' RETURNING "Id"', "mysql": ""}
# A transaction of MySQL that has read before reads the task of another transaction only with a lock.
_LATEST = {"sqlite": "", "postgres": "", "mysql": " LOCK IN SHARE MODE"}
_REFUSED = ("run", "wait", "batch")


def _dialect(connection):
    """Returns the engine and the placeholder for a parameter."""
    module = type(connection).__module__.split(".")[0].lstrip("_").lower()
    if module.startswith("sqlite3"):
        return "sqlite", "?"
    if module.startswith("psycopg"):
        return "postgres", "%s"
    if module in ("pymysql", "mysqldb", "mysql", "mariadb"):
        return "mysql", "%s" if getattr(sys.modules.get(module), "paramstyle", "format") != "qmark" else "?"
    raise TypeError(f"{module} is no driver that this knows")


def _id_of(cursor, engine):
    """Returns the id of the row that the cursor inserted, or None if there is none."""
    if engine == "postgres":
        row = cursor.fetchone()
        return None if row is None else _value_of(row)
    return cursor.lastrowid if cursor.rowcount > 0 else None


def _value_of(row):
    """Returns the first value, also if the connection returns rows as dictionaries."""
    return next(iter(row.values())) if isinstance(row, dict) else row[0]


def _option(name, value):
    if value is None or value is False:
        return []
    if name in _REFUSED:
        raise QueueError(f'the option "{name}" is not for programs that queue; nothing was queued', 2)
    if value is True:
        return [f"--{name}"]
    if isinstance(value, dict):
        value = [f"{key}={item}" for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [f"--{name}={item}" for item in value]
    if name in ("in", "expires", "timeout", "unique-for") and isinstance(value, (int, float)):
        value = f"{int(value)}s"
    return [f"--{name}={value}"]


def _error_of(ended):
    try:
        said = json.loads(ended.stderr.splitlines()[-1])["error"]
        return QueueError(said["message"], ended.returncode, said["code"], said["hint"])
    except (ValueError, LookupError, TypeError):
        return QueueError(ended.stderr.strip() or f"exit status {ended.returncode}", ended.returncode)
