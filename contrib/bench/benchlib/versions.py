"""What was measured, and with which settings: printed before the table. Refuses servers that are not durable."""

import os
import platform
import re
import shutil
import subprocess

from .context import ALL_ENGINES, ENGINES
from .figures import NotThere
from .stores import Database

# What each server must say of itself; anything else would be another race.
DURABLE = {
    "postgres": {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"},
    "mariadb": {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "1"},
    "mysql": {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "on"},
}
TOLD = {
    "postgres": ("shared_buffers", "wal_sync_method"),
    "mariadb": ("innodb_buffer_pool_size", "log_bin"),
    "mysql": ("innodb_buffer_pool_size", "log_bin"),
}
PROGRAMS = {
    "rustc": ["rustc", "--version"],
    "python": ["python3", "--version"],
    "php": ["php", "--version"],
    "task-spooler": ["tsp", "-V"],
    "nq": ["dpkg-query", "-W", "-f", "${Version}", "nq"],
    "GNU parallel": ["parallel", "--version"],
    "xargs": ["xargs", "--version"],
}


def setting(database, engine, name):
    if engine == "postgres":
        return database.ask(f"SELECT current_setting('{name}') AS value")[0]
    return database.ask(f"SELECT CAST(@@GLOBAL.{name} AS char(100)) AS value")[0]


def servers(bench):
    """Name and settings of each server that runs, and why another is not measured."""
    told = {}
    for engine in [engine for engine in ALL_ENGINES if engine in ENGINES or bench.servers[engine]]:
        try:
            with Database(bench, engine) as database:
                told[engine] = server(database, engine)
        except NotThere as why:
            told[engine] = f"not measured: {why}"
    return told


def server(database, engine):
    if engine == "sqlite":
        return f"{database.ask('SELECT sqlite_version() AS value')[0]}, WAL, synchronous=FULL"
    for name, wanted in DURABLE[engine].items():
        found = setting(database, engine, name)
        if found.strip().lower() not in (wanted, {"1": "on"}.get(wanted, wanted)):
            raise SystemExit(f"{engine} is not durable: {name} is {found}, not {wanted}")
    version = database.ask("SELECT version() AS value")[0]
    number = re.search(r"\d+\.\d+(\.\d+)?", version).group()
    names = [*DURABLE[engine], *TOLD[engine]]
    return ", ".join([number, *(f"{name}={setting(database, engine, name).strip()}" for name in names)])


def first_line(argv):
    if not shutil.which(argv[0]):
        return None
    done = subprocess.run(argv, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip().splitlines()[0] if done.returncode == 0 else None


def machine():
    names = re.findall(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    memory = int(re.search(r"MemTotal:\s+(\d+)", open("/proc/meminfo").read()).group(1)) // 1024 // 1024
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}, {memory} GiB, Linux {platform.release()}"


def all_versions(bench):
    told = {"machine": machine(), "taskqueue": first_line([bench.program("taskqueue"), "--version"]) or "?"}
    commit = first_line(["git", "-C", str(bench.source), "describe", "--always", "--dirty"])
    told["commit"] = commit or "unknown"
    told.update(servers(bench))
    for name, argv in PROGRAMS.items():
        told[name] = first_line(argv) or "not installed"
    # The installation wrote down what it installed.
    for path in sorted((bench.home / "versions").glob("*")) if bench.peers != "none" else ():
        told[path.name] = path.read_text().strip()
    return told
