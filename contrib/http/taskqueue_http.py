"""Queues tasks, waits for them and works on them over HTTP, with `taskqueue web`.

    from taskqueue_http import Taskqueue, TaskFailed, TaskReleased, TaskqueueError

    queue = Taskqueue("http://127.0.0.1:8321", token)
    task_id = queue.queue("mail.send", {"to": "ann@example.org"}, unique="welcome-17", delay=600, priority=5)
    ids = queue.queue_batch([{"class": "page.fetch", "data": number} for number in range(100)])
    print(queue.wait(task_id, 60)["task"]["status"])

    queue.work(["mail.*"], lambda run: send(run["data"]))

A request is repeated after a lost answer if that has no second effect: a task with a `unique` key is queued once (unless its
on_conflict is "fail": a repeat would be refused), and the end of a run is recorded once. A claim is repeated, too: the runs
of the lost answer are free again when their lease expires. Otherwise a lost answer is an error with the code "lost". This is
one file without dependencies: copy it into the application. For more, see docs/web.md#programs.
"""

import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.request

# Waits between the tries of a request, in seconds.
_PAUSES = (0.25, 0.5, 1, 2, 4)
# The longest wait that the server accepts, and how long an answer may take.
_LONGEST_WAIT_SECS = 50
_ANSWER_SECS = 70
# How often the lease is renewed at least; a cancel is noticed that soon.
_BEAT_SECS = 15
# The statuses of answers that refuse what was sent: it is wrong or too large.
_REFUSED = (400, 413, 422)


class TaskqueueError(Exception):
    """A request failed. `code` and `detail` are those of the problem; `status` is the HTTP status, or 0 without an answer."""

    def __init__(self, status, code, detail, retry_after_secs=0):
        super().__init__(f"{code}: {detail}")
        self.status, self.code, self.detail, self.retry_after_secs = status, code, detail, retry_after_secs

    def may_pass(self):
        """Returns true if the next try may succeed."""
        return self.status in (0, 429) or self.status >= 500


class TaskFailed(Exception):
    """Raised by a handler: its task has failed with this error."""

    def __init__(self, code, message="", retry=True, delay_secs=None):
        super().__init__(message)
        self.error = {"code": code, "message": str(message), "retry": retry}
        if delay_secs is not None:
            self.error["delay_secs"] = delay_secs


class TaskReleased(Exception):
    """Raised by a handler: returns the run. The task is due at once, for this login only if `reject` is false."""

    def __init__(self, reason="", reject=True):
        super().__init__(reason)
        self.reject = reject


class Taskqueue:
    """A server and a login."""

    def __init__(self, address, token):
        self._base, self._token = address.rstrip("/") + "/api/v1/", token

    def queue(self, task_class, data=None, **options):
        """Queues a task and returns its id. If a live task has the `unique` key already, returns the id of that task.

        The options are the keys of a line of `taskqueue queue --batch`: unique, on_conflict, priority, at, timeout, after and so
        on; `delay` is `in`, in seconds."""
        if "delay" in options:
            options["in"] = f"{options.pop('delay')}s"
        return self.queue_batch([{"class": task_class, "data": {} if data is None else data, **options}])[0]

    def queue_batch(self, tasks):
        """Queues tasks, all or none, and returns their ids. A task is a dictionary with the keys of a line of a batch."""
        tasks = list(tasks)
        lines = "".join(json.dumps(task, allow_nan=False) + "\n" for task in tasks)
        can_repeat = all(task.get("unique") is not None and task.get("on_conflict") != "fail" for task in tasks)
        return [task["id"] for task in self._call("tasks", lines, "application/x-ndjson", can_repeat)["tasks"]]

    def task(self, task_id, wait_secs=0):
        """Returns what `status ID --json` prints; waits up to `wait_secs`, at most 50, until the task has finished."""
        return self._call(f"tasks/{task_id}?wait_secs={int(wait_secs)}")

    def wait(self, task_id, secs=float("inf")):
        """Waits until the task has finished, or for this time; returns what `status ID --json` prints."""
        end = time.monotonic() + secs
        while True:
            left = end - time.monotonic()
            document = self.task(task_id, max(0, min(left, _LONGEST_WAIT_SECS)))
            if document["task"]["is_settled"] or left <= 0:
                return document

    def claim(self, classes=(), count=1, wait_secs=0, **choice):
        """Claims up to `count` runs of these classes; waits up to `wait_secs`, at most 50, for the first. `choice` is `task`,
        `unique`, `limit_key` or `tag`. If the answer is lost, its runs are free again when their leases expire."""
        return self._post("claims", {"class": list(classes), "count": count, "wait_secs": wait_secs, **choice})["runs"]

    def heartbeat(self, run, percents=None, message=None):
        """Renews the lease of a claimed run. If the answer has `cancel_requested`, stop working."""
        report = {"percents": percents, "message": message}
        return self._end("heartbeat", run, {key: value for key, value in report.items() if value is not None})

    def resolve(self, run, results=None):
        """Ends a claimed run: it has succeeded."""
        return self._end("resolve", run, {"results": results})

    def fail(self, run, error):
        """Ends a claimed run: it has failed. `error` has a `code`, and may have `message`, `retry` and `delay_secs`."""
        return self._end("resolve", run, {"error": error})

    def release(self, run, reason="", reject=True):
        """Returns a claimed run without an outcome. With `reject`, this login never gets the task again."""
        return self._end("release", run, {"reason": reason, "reject": reject})

    def work(self, classes, handler, stop=None, wait_secs=_LONGEST_WAIT_SECS):
        """Claims runs one by one, and calls `handler(run)`, until the `threading.Event` `stop` is set. The run has `data`,
        `class`, `task_id`, `attempt` and so on; the handler returns the results, or raises. Meanwhile a thread renews the lease,
        and sets `run["stop"]`, an Event, when the handler should stop, and raise."""
        stop = stop or threading.Event()
        while not stop.is_set():
            try:
                runs = self.claim(classes, wait_secs=wait_secs)
            except TaskqueueError as error:
                if not error.may_pass():
                    raise
                logging.warning("cannot claim: %s", error)
                stop.wait(5)
                continue
            for run in runs:
                self._handle(run, handler)

    def _handle(self, run, handler):
        run["stop"], done = threading.Event(), threading.Event()
        beat = threading.Thread(target=self._beat, args=(run, done), daemon=True)
        beat.start()
        try:
            results = handler(run)
            # What is no JSON fails the task.
            json.dumps(results, allow_nan=False)
            end, argument = self.resolve, [results]
        except TaskFailed as failed:
            end, argument = self.fail, [failed.error]
        except TaskReleased as released:
            end, argument = self.release, [str(released), released.reject]
        except Exception as error:  # noqa: BLE001
            end, argument = self.fail, [{"code": type(error).__name__, "message": str(error)}]
        finally:
            done.set()
        beat.join()
        try:
            self._finish(run, end, argument)
        except TaskqueueError as error:
            # If the lease has expired, another process may have the task.
            logging.warning("the end of run %s is not recorded: %s", run["run_id"], error)

    def _finish(self, run, end, argument):
        try:
            end(run, *argument)
        except TaskqueueError as error:
            if error.status not in _REFUSED:
                raise
            # The next attempt would end the same way.
            code = "invalid-results" if end == self.resolve else "refused-answer"
            self.fail(run, {"code": code, "message": error.detail, "retry": False})

    def _beat(self, run, done):
        while not done.wait(min(run["timeout_secs"] / 3, _BEAT_SECS)):
            try:
                if self.heartbeat(run)["cancel_requested"]:
                    run["stop"].set()
            except TaskqueueError as error:
                if not error.may_pass():
                    run["stop"].set()

    def _end(self, verb, run, body):
        return self._post(f"runs/{run['run_id']}/{verb}", {"token": run["token"], **body})

    def _post(self, path, body):
        return self._call(path, json.dumps(body, allow_nan=False), "application/json")

    def _call(self, path, body=None, kind=None, can_repeat=True):
        """Sends a request. It is repeated if it was not carried out, or if `can_repeat`."""
        for pause in (*_PAUSES, None):
            try:
                return self._send(path, body, kind)
            except TaskqueueError as error:
                is_undone = error.code in ("busy", "too-many", "connect")
                if pause is None or not error.may_pass() or not (is_undone or can_repeat):
                    raise
                pause = max(pause, error.retry_after_secs)
            time.sleep(pause)

    def _send(self, path, body, kind):
        headers = {"Authorization": f"Bearer {self._token}", **({"Content-Type": kind} if kind else {})}
        request = urllib.request.Request(self._base + path, body and body.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            raise _problem(refused) from None
        except urllib.error.URLError as error:
            is_unsent = isinstance(error.reason, ConnectionRefusedError)
            raise TaskqueueError(0, "connect" if is_unsent else "lost", str(error.reason)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TaskqueueError(0, "lost", f"the answer was lost: {error}") from error


def _problem(refused):
    try:
        problem = json.load(refused)
        return TaskqueueError(refused.code, problem["code"], problem["detail"], int(refused.headers.get("Retry-After", 0)))
    except (OSError, ValueError, LookupError, TypeError):
        # A proxy answers in its own words.
        return TaskqueueError(refused.code, "proxy", refused.reason)
