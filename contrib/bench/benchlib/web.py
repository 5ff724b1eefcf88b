"""Our web server: started on a store, asked by the harness, and followed by streams."""

import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager

from .figures import NotThere
from .ours import running

START_SECS = 30


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
                    raise NotThere("a stream is refused")
            yield


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
