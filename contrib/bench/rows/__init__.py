"""The rows of the benchmark, one file each, in the order of the table. A row is a module with TITLE, ENGINES and
`measure(bench, engine)`, which returns lines."""

from importlib import import_module

ORDER = (
    "process",
    "noop",
    "writes",
    "coprocess",
    "batch",
    "library",
    "queue_once",
    "idle",
    "create_runs",
    "pickup",
    "depth",
    "snapshot",
    "workers",
    "hour",
    "memory",
    "tools",
    "screens",
    "payload",
    "turns",
    "web",
    "live",
    "start",
)
# Only when they are asked for by name: they take too long, or answer a question of ours alone.
ON_REQUEST = ("hour", "screens", "payload", "turns", "web", "live", "start")

ALL = {name: import_module(f"rows.{name}") for name in ORDER}
