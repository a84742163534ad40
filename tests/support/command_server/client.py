"""Runs commands of the program in tests/support/command_server, which does not load libtorch for each."""

import io
import os
import selectors
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

# Libraries read these when they are loaded, so a command that sets one needs a process of its own.
READ_AT_LOAD = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "GLIBC_", "ATEN_", "TORCH_", "DNNL_", "ONEDNN_")


def read_at_load(environment):
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_LOAD)}


class CommandServer:
    """Starts with the first command and ends with this process, or with close()."""

    def __init__(self, program, environment):
        self.program, self.environment, self.process = program, environment, None
        self.starting = threading.Lock()  # tests may run commands in several threads

    def serves(self, environment):
        return read_at_load(environment) == read_at_load(self.environment)

    def run(self, arguments, cwd, env, timeout):
        """As subprocess.run with both outputs captured; standard input is empty."""
        outputs, streams = zip(*(os.pipe() for _ in range(2)))
        texts = [str(cwd), str(len(arguments)), *arguments, *(f"{name}={value}" for name, value in env.items())]
        with self.connected() as connection:
            message = b"".join(os.fsencode(text) + b"\0" for text in texts)
            sent = socket.send_fds(connection, [message], streams)
            connection.sendall(message[sent:])
            connection.shutdown(socket.SHUT_WR)
            for stream in streams:
                os.close(stream)
            process = self.number(connection)
            try:
                out, err = read_all(outputs, timeout)
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout) from None
            finally:
                for output in outputs:
                    os.close(output)
            code = os.waitstatus_to_exitcode(self.number(connection))
        return subprocess.CompletedProcess(arguments, code, as_text(out), as_text(err))

    def connected(self):
        with self.starting:
            if not self.process:
                self.start()
        connection = socket.socket(socket.AF_UNIX)
        while True:
            try:
                connection.connect(self.path)
                return connection
            except (FileNotFoundError, ConnectionRefusedError):  # not yet listening
                assert self.process.poll() is None, "the server of commands has ended"
                time.sleep(0.01)

    def start(self):
        # Socket paths have at most 107 characters, which a test's own folder may exceed.
        self.folder = tempfile.TemporaryDirectory(prefix="served-")
        self.path = f"{self.folder.name}/socket"
        words = [self.program, "--serve", self.path]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, env=self.environment)

    @staticmethod
    def number(connection):
        number = connection.recv(4, socket.MSG_WAITALL)
        assert len(number) == 4, "the server of commands has ended"
        return struct.unpack("i", number)[0]

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.folder.cleanup()


def as_text(output):
    return io.TextIOWrapper(io.BytesIO(output)).read()


def read_all(outputs, timeout):
    """What is written to the pipes until all writers have closed them."""
    texts, end = {output: b"" for output in outputs}, time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                texts[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
    return [texts[output] for output in outputs]
