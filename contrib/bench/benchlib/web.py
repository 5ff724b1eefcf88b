"""Our web server: started on a store, asked by the harness or over one connection, followed by streams, and watched by people."""

import http.client
import select
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

from .figures import NotThere
from .ours import running

START_SECS = 30
# Longer than the server allows for a request.
ANSWER_SECS = 90
# How long page.js waits at least, and at most, before it loads a page again; and at least for a log.
LEAST_SECS, MOST_SECS, LEAST_LOG_SECS = 0.4, 10, 0.1


class Server:
    """A server and the token of an administrator."""

    def __init__(self, bench, worker, port, token):
        self.bench, self.worker, self.pid, self.port, self.token = bench, worker, worker.pid, port, token

    def head(self, method, path, more=""):
        return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
                f"{more}\r\n").encode()

    def rate(self, requests, clients, path, body=None):
        """Requests a second, by clients that keep their connections."""
        request = self.head("GET", path)
        if body is not None:
            more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            request = self.head("POST", path, more) + body.encode()
        argv = [self.bench.program("bench_http"), "requests", f"127.0.0.1:{self.port}", str(requests), str(clients)]
        done = subprocess.run(argv, input=request, capture_output=True)
        if done.returncode:
            raise NotThere(done.stderr.decode(errors="replace").strip()[-200:])
        return requests / float(done.stdout)

    def connect(self):
        """A connection that is kept for many requests."""
        return closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECS))

    def get(self, connection, path):
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            # The next request connects again.
            connection.close()
            raise
        if answer.status != 200:
            raise NotThere(f"{path} is answered with {answer.status}")
        return body

    @contextmanager
    def streams(self, count, path):
        """So many open streams, each of which has answered."""
        with ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(("127.0.0.1", self.port))) for _ in range(count)]
            for stream in opened:
                stream.sendall(self.head("GET", path))
            for stream in opened:
                stream.settimeout(START_SECS)
                if b" 200 " not in stream.recv(4096):
                    raise NotThere(f"the stream {path} is refused")
            yield opened

    @contextmanager
    def watchers(self, count):
        """So many people who have the first page open."""
        over = threading.Event()
        with ThreadPoolExecutor(max(1, count)) as pool:
            watching = [pool.submit(self._watch, over) for _ in range(count)]
            try:
                yield
            finally:
                over.set()
        for watched in watching:
            watched.result()

    def _watch(self, over):
        with self.streams(1, "/live") as (stream,), self.connect() as connection:
            while not over.is_set():
                loaded = time.monotonic()
                self.get(connection, "/")
                while not over.is_set() and time.monotonic() < loaded + MOST_SECS and not has_changed(stream, 0.2):
                    pass
                over.wait(max(0, loaded + LEAST_SECS - time.monotonic()))


def has_changed(stream, secs):
    """Whether an event `changed` comes within that time."""
    if not select.select([stream], [], [], secs)[0]:
        return False
    read = stream.recv(65536)
    if not read:
        raise NotThere("the server closed a stream")
    # The other lines only say that the stream is alive.
    return b"changed" in read


@contextmanager
def serving(bench, store):
    token = store.run("web", "token", "add", "bench", "--may", "admin").strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running(store, "taskqueue", "web", "--rate", "10000/1s", "--listen", f"127.0.0.1:{port}") as worker:
        late = time.monotonic() + START_SECS
        while not listens(port):
            worker.must_live()
            if time.monotonic() > late:
                raise NotThere("the server does not listen")
            time.sleep(0.1)
        yield Server(bench, worker, port, token)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
