"""Stands between clients and a server: forwards, swallows everything as a broken network does, or speaks TLS.

Does not drop packets: a connection that is made while everything is swallowed
seems to succeed, and gets no answer.
"""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STRETCH_BYTES = 1 << 16


class RedisProxy:
    """Forwards connections to a port of the loopback; threads of its own do the work."""

    def __init__(self, target_port: int, tls: ssl.SSLContext | None = None) -> None:
        self._target_port = target_port
        self._tls = tls
        self._flows = threading.Event()
        self._flows.set()
        self._forsaken: list[threading.Event] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Let nothing through in either direction, without closing anything."""
        self._flows.clear()

    def heal(self) -> None:
        """Let everything through again, also what has been sent meanwhile, as TCP would."""
        self._flows.set()

    def forsake(self) -> None:
        """Let nothing more through the connections there are, without closing them; new ones are served."""
        self._flows.clear()
        self._forsaken.append(self._flows)
        self._flows = threading.Event()
        self._flows.set()

    def close(self) -> None:
        """Close it, and every connection."""
        for flows in (self._flows, *self._forsaken):
            flows.set()
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # It was closed.
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client, self._flows), daemon=True).start()

    def _serve(self, client: socket.socket, flows: threading.Event) -> None:
        flows.wait()
        with suppress(OSError):  # Either side may hang up at any time, or never speak TLS.
            near = client if self._tls is None else self._tls.wrap_socket(client, server_side=True)
            far = socket.create_connection(("127.0.0.1", self._target_port))
            self._sockets += [near, far]
            threading.Thread(target=self._forward, args=(far, near, flows), daemon=True).start()
            self._forward(near, far, flows)
            return
        client.close()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
        with suppress(OSError):
            while stretch := source.recv(_STRETCH_BYTES):
                flows.wait()
                target.sendall(stretch)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def redis_proxy(target_port: int, tls: ssl.SSLContext | None = None) -> Iterator[RedisProxy]:
    """Run a proxy for the time of the block."""
    proxy = RedisProxy(target_port, tls)
    try:
        yield proxy
    finally:
        proxy.close()


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return a server's side of TLS for 127.0.0.1, and the certificate to trust; made with openssl."""
    key, certificate = folder / "tls.key", folder / "tls.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
