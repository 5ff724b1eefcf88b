"""Measures the rows that were asked for, and writes the table, the JSON and the picture. Called by `run`, which installs and
starts what is needed."""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import rows
from benchlib import show
from benchlib.context import SHOWN, Bench
from benchlib.draw import svg
from benchlib.figures import Line, missing, reason
from benchlib.versions import all_versions

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
# What a run puts into the documentation: the whole table, or one of the rows that are measured only when they are asked for.
TABLE = "table"
BLOCKS = ("hour", "web", "live", "screens", "start")


def arguments():
    reader = argparse.ArgumentParser(prog="contrib/bench/run", description="Measures taskqueue beside the limits of the "
                                     "machine and its peers, and prints medians and ratios.")
    reader.add_argument("--quick", action="store_true", help="few rounds of small counts, for a look: no figures to keep")
    reader.add_argument("--only", action="append", metavar="ROW", choices=rows.ORDER, help="this row; can be repeated")
    reader.add_argument("--list", action="store_true", help="the rows there are")
    reader.add_argument("--peers", choices=("all", "none"), default="all", help="with the peers, or without (default: all)")
    reader.add_argument("--docs", action="store_true", help="put the table into docs/benchmarks.md as well")
    reader.add_argument("--before", metavar="PROGRAM", type=os.path.abspath, help="an earlier taskqueue, for --only start")
    reader.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    asked = reader.parse_args()
    if asked.docs and asked.quick:
        reader.error("a look is not for the documentation: leave out --quick or --docs")
    if asked.docs and asked.only not in (None, *([row] for row in BLOCKS)):
        reader.error(f"--docs with all rows, or with --only and one of {', '.join(BLOCKS)}")
    if "start" in (asked.only or ()) and not asked.before:
        reader.error("the row start needs --before PROGRAM")
    return asked


def list_rows():
    for name, row in rows.ALL.items():
        print(f"{name:12} {row.TITLE}{'  (only with --only)' if name in rows.ON_REQUEST else ''}")


def measure_row(bench, name):
    """What breaks on an engine was not measured there, and says so; what was before stays, and the others go on."""
    row = rows.ALL[name]
    for engine in row.ENGINES:
        bench.note(f"{name}: {SHOWN[engine]}")
        try:
            yield from row.measure(bench, engine)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            yield Line(name, row.TITLE, SHOWN[engine], missing("taskqueue", "", reason(error)))


def write(place, lines, versions, about):
    place.mkdir(parents=True, exist_ok=True)
    looks = ["A quick look: too short and too small for figures to keep.", ""] if about["quick"] else []
    text = "\n".join([*looks, *(f"{name}: {told}" for name, told in versions.items()), "", show.text_table(lines), "",
                      show.summary(lines), ""])
    (place / "table.txt").write_text(text)
    (place / "results.json").write_text(show.as_json(lines, versions, about))
    (place / "table.md").write_text(show.markdown(lines, versions, about))
    (place / "picture.svg").write_text(svg(lines, about))
    return text


def put_into_docs(block, table, picture):
    begin, end = f"<!-- begin of the measured {block} -->", f"<!-- end of the measured {block} -->"
    before, rest = DOCS.read_text().split(begin)
    _, after = rest.split(end)
    drawn = DOCS.with_name("benchmarks.svg" if block == TABLE else f"benchmarks-{block}.svg")
    drawn.write_text(picture)
    DOCS.write_text(f"{before}{begin}\n{table}\n\n![The ratios of the {block} as bars]({drawn.name})\n{end}{after}")


def stop(*_):
    # Asked twice, it would leave undone what it does at the first time.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    asked = arguments()
    if asked.list:
        list_rows()
    if asked.list or asked.check:
        return
    # Workers and databases that a row has started are ended with it, whoever stops it.
    signal.signal(signal.SIGTERM, stop)
    home = os.environ["TASKQUEUE_BENCH_HOME"]
    bench = Bench(home, os.environ["CARGO_TARGET_DIR"], asked.quick, asked.peers, asked.before)
    versions = all_versions(bench)
    about = {"made_on": time.strftime("%Y-%m-%d %H:%M"), "command": shlex.join(["contrib/bench/run", *sys.argv[1:]]),
             "rounds": bench.rounds, "quick": bench.quick, "secs": {}}
    place = Path(home) / "results" / time.strftime("%Y%m%d-%H%M%S")
    chosen = [name for name in rows.ORDER if (name in asked.only if asked.only else name not in rows.ON_REQUEST)]
    lines, text = [], ""
    for name in chosen:
        started = time.monotonic()
        for line in measure_row(bench, name):
            lines.append(line)
            # After each line: who stops it keeps what was measured.
            text = write(place, lines, versions, about)
        about["secs"][name] = round(time.monotonic() - started)
        bench.note(f"{name}: {about['secs'][name]} s")
    text = write(place, lines, versions, about)
    print(text)
    if asked.docs:
        put_into_docs(asked.only[0] if asked.only else TABLE, show.markdown(lines, versions, about), svg(lines, about))
    subprocess.run(["ln", "-sfn", place.name, str(place.parent / "latest")], check=True)
    print(f"table.txt, table.md, results.json and picture.svg are in {place}")


if __name__ == "__main__":
    main()
