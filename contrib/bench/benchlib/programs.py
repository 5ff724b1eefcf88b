"""How a program is asked: what it prints, or in one line why it did not get through."""

import subprocess
from pathlib import Path

from .figures import NotThere

# Longer than anything takes here: what hangs is named, and the others go on.
LIMIT_SECS = 900


def output(argv, env=None, limit_secs=LIMIT_SECS):
    """What a program prints; NotThere says why it failed."""
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_secs)
    except subprocess.TimeoutExpired as late:
        raise NotThere(f"{in_short(argv)}: not done within {limit_secs} s") from late
    if done.returncode != 0:
        raise NotThere(f"{in_short(argv)}: {last_words(done)}")
    return done.stdout


def in_short(argv):
    """The program and its verb; an address tells nobody anything."""
    words = [word for word in argv if "://" not in word and "=" not in word]
    return " ".join([*(Path(word).name for word in words[:1]), *words[1:3]])[:80]


def last_words(done):
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip() and not line.startswith("note: ")]
    panics = [number for number, line in enumerate(lines) if "panicked" in line]
    # What went wrong stands below the line that says where.
    lines = lines[panics[-1] + 1:] if panics and panics[-1] + 1 < len(lines) else lines
    helpful = [line for line in lines if "error" in line.lower()] or lines
    return " ".join(helpful[-2:])[:200] or f"exit status {done.returncode}"
