#!/usr/bin/env python3
"""A sample handler in Python: computes the checksum of the file that the task names.

Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.
"""

import hashlib
import json
import os
import sys

BAD_DATA = 65  # a retry cannot help
TRY_LATER = 75

events = open(3, "w", encoding="utf-8")


def report(**event):
    """Writes one JSON object per line and flushes it; otherwise it would arrive only at the end."""
    print(json.dumps(event), file=events, flush=True)


def fail(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def read_task():
    try:
        data = json.load(sys.stdin)
    except ValueError:
        data = None
    path = data.get("file") if isinstance(data, dict) else None
    if not isinstance(path, str) or not path.startswith("/"):
        fail(BAD_DATA, 'the data must be {"file":"/absolute/path"}')
    return path


def main():
    path = read_task()
    try:
        source = open(path, "rb")
    except OSError as error:
        fail(TRY_LATER, f"{path} cannot be read yet: {error.strerror}")
    with source:
        size = os.fstat(source.fileno()).st_size
        digest = hashlib.sha256()
        done = 0
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            report(progress=min(100, done * 100 // max(size, 1)), message=f"{done} bytes read")
    report(progress=100, result={"bytes": done, "sha256": digest.hexdigest()})


main()
