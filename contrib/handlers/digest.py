#!/usr/bin/env python3
"""A sample handler in Python, for a process per run and for a coprocess: computes the checksum of a file.

Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.
"""

import hashlib

from taskqueue_handler import Failure, serve


def digest(task):
    path = task.data.get("file") if isinstance(task.data, dict) else None
    if not isinstance(path, str) or not path.startswith("/"):
        raise Failure("bad-data", 'the data must be {"file":"/absolute/path"}', exit_code=65)
    try:
        with open(path, "rb") as source:
            content = source.read()
    except OSError as error:
        raise Failure("no-file", f"{path} cannot be read yet: {error.strerror}", exit_code=75) from error
    task.progress(50, f"{len(content)} bytes read")
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


serve(digest)
