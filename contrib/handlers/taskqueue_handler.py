"""Use one handler function in both ways: in a process for each run, and in a coprocess that keeps running.

    from taskqueue_handler import Failure, serve

    def handle(task):
        task.progress(50, "half of it")
        if not task.data.get("to"):
            raise Failure("invalid-data", "nobody to send to", retry=False)
        return {"sent": 1}

    serve(handle)

The return value of the function is the result; return None for no result. An exception fails the run, which is retried. Raise a
Failure to set the code, the retry or the delay. sys.exit(N) has the meaning of exit code N, but sys.exit(0) is a failure. This
is one file without dependencies: copy it next to the handler. docs/coprocess.md describes the protocol. In a coprocess, print
goes to standard error, because the protocol uses standard output.
"""

import collections
import json
import os
import select
import subprocess
import sys
import time
import traceback

VERSION = 1
LONGEST_LINE = 1 << 20
LONGEST_MESSAGE = 10_000


class Failure(Exception):
    """Describes why a run fails. The rules of the class decide what `exit_code` means; delay is in seconds."""

    def __init__(self, code, message="", retry=None, delay=None, exit_code=1):
        super().__init__(message or code)
        self.exit_code = exit_code
        said = {"code": code, "message": message, "retry": retry, "delay": delay}
        self.error = {key: value for key, value in said.items() if value is not None}


# A message to a task: `name`, and `data` parsed from JSON.
Message = collections.namedtuple("Message", "name data")


class Task:
    """One run."""

    def __init__(self, message, report, stop_reason, next_message):
        self.id = message["task_id"]
        self.run_id = message["run_id"]
        self.attempt = message["attempt"]
        self.max_retries = message["max_retries"]
        self.task_class = message["class"]
        self.token = message["token"]
        self.planned_on = message["planned_on"]
        self.deadline = message["deadline"]
        self.data = message["data"]
        self._events_socket = message.get("events_socket")
        self._report = report
        self._stop_reason = stop_reason
        self._next_message = next_message

    def progress(self, percent, message=None):
        """Reports progress: 0 to 100, and a message for people. Every report restarts the timeout."""
        self._report({"progress": percent} if message is None else {"progress": percent, "message": message})

    def result(self, value):
        """Reports the results so far; later results replace them."""
        self._report({"result": value})

    def meta(self, **values):
        """Adds to the metadata of the task when the run ends, with any outcome; None removes a name."""
        self._report({"meta": values})

    def emit(self, name, data=None):
        """Sends a message to all processes that follow the events."""
        self._report({"event": name, "data": data})

    def heartbeat(self):
        """Reports that the handler is still working."""
        self._report({"heartbeat": True})

    def queue(self, task_class, data=None, *options):
        """Queues a child of this task and returns its id: task.queue("mail.send", {"to": "ann"}, "--in", "5m")."""
        return int(self.taskqueue("queue", task_class, "-", *options, data=json.dumps({} if data is None else data)))

    def taskqueue(self, *arguments, data=""):
        """Runs `taskqueue` on behalf of this task and returns its output: task.taskqueue("wait", "17").

        `data` is its standard input.
        """
        environment = dict(os.environ)
        if self._events_socket:
            environment.update(TASKQUEUE_EVENTS_SOCKET=self._events_socket, TASKQUEUE_EVENTS_TOKEN=self.token)
        ended = subprocess.run(["taskqueue", *arguments], input=data, env=environment, capture_output=True, text=True)
        if ended.returncode != 0:
            raise Failure("taskqueue", ended.stderr.strip()[:LONGEST_MESSAGE])
        return ended.stdout.strip()

    def next_message(self, wait=0):
        """Returns the next Message to this task; None if none arrives within `wait` seconds, or if the run must end.

        The first call begins to listen. It also receives messages that were sent to this attempt earlier, or kept for it.
        """
        return self._next_message(time.monotonic() + wait)

    def is_cancelled(self):
        """Returns True if the run must end: clean up, then return or raise. If the process gets SIGTERM, handle the signal."""
        return self.stop_reason() is not None

    def stop_reason(self):
        """Returns why the run must end: "cancel", "timeout", "shutdown" or "lease-lost"; None while it may continue.

        If the process gets SIGTERM, the reason is available before the signal.
        """
        return self._stop_reason()


def serve(handle, in_flight=1, cancel=False):
    """Runs `handle` for the run of this process, or for all runs of a coprocess.

    A coprocess with `in_flight` above 1 receives up to that number of runs ahead, and processes them one after another, which
    is faster for short runs. With `in_flight` above 1, or with `cancel`, the handler must check `task.is_cancelled()`
    regularly. Otherwise the runner ends the process when its run must end.
    """
    if os.environ.get("TASKQUEUE_PROTOCOL") == "coprocess":
        _Coprocess(handle, in_flight, cancel).work()
    else:
        _work_once(handle)


def _describe(error):
    """Returns the exit code and the error for what a handler raised."""
    if isinstance(error, Failure):
        return error.exit_code, error.error
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        if code == 0:
            return 1, {"code": "exit", "message": "the handler called sys.exit() before it returned"}
        return code & 0xFF, None
    sys.stdout.flush()
    traceback.print_exception(type(error), error, error.__traceback__)
    return 1, {"code": type(error).__name__, "message": str(error)[:LONGEST_MESSAGE]}


def _read_stop_reason():
    """Reads what the runner wrote to the file on the descriptor before TERM."""
    descriptor = int(os.environ.get("TASKQUEUE_STOP_REASON_FD", "4"))
    try:
        return os.pread(descriptor, 64, 0).decode().strip() or None
    except OSError:
        return None


class _Followed:
    """The messages to the run of this process, read from `taskqueue events`."""

    def __init__(self, task_id, run_id):
        self.task_id, self.run_id = str(task_id), str(run_id)
        self.process = None
        self.rest = b""
        self.messages = collections.deque()

    def next(self, until):
        if self.process is None:
            command = ["taskqueue", "events", "--task", self.task_id, "--run", self.run_id, "--kind", "message-to-task"]
            command += ["-n", "1000", "--follow", "--json"]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        while not self.messages:
            left = max(0, until - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise Failure("taskqueue", "the messages cannot be followed: `taskqueue events` has ended")
            *lines, self.rest = (self.rest + chunk).split(b"\n")
            for details in (json.loads(line)["details"] for line in lines):
                if "name" in details:
                    self.messages.append(Message(details["name"], details.get("data")))
        return self.messages.popleft()

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _work_once(handle):
    events = open(int(os.environ.get("TASKQUEUE_EVENTS_FD", "3")), "w", encoding="utf-8")

    def report(event):
        events.write(json.dumps(event, allow_nan=False) + "\n")
        events.flush()

    def variable(name, default=""):
        return os.environ.get("TASKQUEUE_" + name, default)

    message = {
        "task_id": int(variable("TASK_ID", "0")),
        "run_id": int(variable("RUN_ID", "0")),
        "attempt": int(variable("ATTEMPT", "1")),
        "max_retries": int(variable("MAX_RETRIES", "0")),
        "class": variable("CLASS"),
        "token": variable("RUN_TOKEN"),
        "planned_on": variable("PLANNED_ON"),
        "deadline": variable("DEADLINE"),
        "data": json.load(sys.stdin),
    }
    followed = _Followed(message["task_id"], message["run_id"])
    try:
        result = handle(Task(message, report, _read_stop_reason, followed.next))
        if result is not None:
            report({"result": result})
    except (Exception, SystemExit) as error:
        code, said = _describe(error)
        if said:
            report({"error": said})
        sys.exit(code)
    finally:
        followed.end()


class _Coprocess:
    def __init__(self, handle, in_flight, cancel):
        self.handle = handle
        capabilities = ["cancel"] if cancel or in_flight > 1 else []
        self.hello = {"type": "hello", "version": VERSION, "capabilities": capabilities, "max_in_flight": in_flight}
        # The handler and the programs that it starts must not write to the protocol's output or read its input.
        self.input, self.output = os.dup(0), os.dup(1)
        os.dup2(2, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.parts = []
        self.waiting = []
        self.has_cancel = bool(capabilities)
        self.cancelled = {}
        # Messages of the runs that listen.
        self.messages = {}
        self.unwritten = []
        self.is_over = False

    def work(self):
        self.say(self.hello)
        self.flush()
        while self.waiting or self.read():
            while self.waiting:
                self.run(self.waiting.pop(0))
            self.flush()

    def run(self, message):
        run_id = message["id"]

        def report(event):
            self.say({"type": "progress", "id": run_id, **event})
            self.flush()

        try:
            result = None
            if run_id in self.cancelled:
                raise Failure("cancelled", "it had not begun")
            result = self.handle(
                Task(message, report, lambda: self.stop_reason(run_id), lambda until: self.next_message(run_id, until))
            )
            answer = {"type": "done", "id": run_id}
            if result is not None:
                answer["result"] = result
            self.say(answer)
        except (Exception, SystemExit) as error:
            code, said = _describe(error)
            sys.stderr.flush()
            if code or said:
                self.say({"type": "fail", "id": run_id, "exit": code or 1, "error": said})
            else:
                self.say({"type": "done", "id": run_id})
        finally:
            sys.stdout.flush()
            self.cancelled.pop(run_id, None)
            self.messages.pop(run_id, None)

    def next_message(self, run_id, until):
        if run_id not in self.messages:
            self.messages[run_id] = collections.deque()
            self.say({"type": "listen", "id": run_id})
            self.flush()
        messages = self.messages[run_id]
        while not messages and run_id not in self.cancelled:
            left = max(0, until - time.monotonic())
            if not select.select([self.input], [], [], left)[0] or not self.read():
                return None
        return messages.popleft() if messages else None

    def stop_reason(self, run_id):
        if not self.has_cancel:
            return _read_stop_reason()
        while select.select([self.input], [], [], 0)[0] and self.read():
            pass
        return self.cancelled.get(run_id)

    def read(self):
        """Reads all available input with one call. Returns False at the end."""
        if self.is_over:
            return False
        chunk = os.read(self.input, 1 << 16)
        if not chunk:
            self.is_over = True
            return False
        self.parts.append(chunk)
        if b"\n" not in chunk:
            return True
        *lines, rest = b"".join(self.parts).split(b"\n")
        self.parts = [rest]
        for line in lines:
            message = json.loads(line)
            kind = message["type"]
            if kind == "run":
                self.waiting.append(message)
            elif kind == "cancel":
                self.cancelled[message["id"]] = message.get("reason", "cancel")
            elif kind == "message":
                if message["id"] in self.messages:
                    self.messages[message["id"]].append(Message(message["name"], message["data"]))
            elif kind == "ping":
                self.say({"type": "pong"})
                self.flush()
            elif kind == "drain":
                self.is_over = True
        return True

    def say(self, message):
        line = json.dumps(message, allow_nan=False)
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a message of {len(line)} bytes: the runner reads {LONGEST_LINE}")
        self.unwritten.append(line)

    def flush(self):
        """Writes all unwritten answers with one call."""
        if self.unwritten:
            data = memoryview(("\n".join(self.unwritten) + "\n").encode())
            self.unwritten.clear()
            while data:
                data = data[os.write(self.output, data) :]
