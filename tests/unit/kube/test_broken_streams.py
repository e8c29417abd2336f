"""A watch that its reader cancels while the server does not answer the TLS shutdown."""

import asyncio
import gc
import json
import socket
import ssl
import threading
import warnings

from devcluster.credentials import create
from reconciler.clock import SystemClock
from reconciler.kube.client import connect

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b'{"type":"BOOKMARK"}\n'


class Stubborn:
    """A server that sends one line and reads nothing further from the connection."""

    def __init__(self, folder):
        self.made = create(folder, SystemClock())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.listener.close()

    def serve(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.made.certificate, self.made.key)
        accepted, _ = self.listener.accept()
        # The connection is closed without a TLS shutdown.
        with context.wrap_socket(accepted, server_side=True) as caller:
            caller.recv(65536)
            caller.sendall(ANSWER + b"%x\r\n%b\r\n" % (len(LINE), LINE))
            self.over.wait(10)

    def kubeconfig(self, file):
        cluster = {
            "server": f"https://127.0.0.1:{self.listener.getsockname()[1]}",
            "certificate-authority": str(self.made.ca),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": cluster}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
        file.write_text(json.dumps(config))
        return str(file)


def test_a_cancelled_watch_leaves_no_connection_open(tmp_path):
    async def watch(kubeconfig):
        client = await connect(kubeconfig)
        stream = client.stream("/api/v1/pods", query={}, accept="application/json", idle=10.0)
        async with asyncio.timeout(10), stream as lines:
            async for line in lines:
                assert json.loads(line) == {"type": "BOOKMARK"}
                break
        await client.close()

    with Stubborn(tmp_path) as server:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(watch(server.kubeconfig(tmp_path / "kubeconfig")))
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always")
            gc.collect()
        assert [str(item.message) for item in reported] == []
