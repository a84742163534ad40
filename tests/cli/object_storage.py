"""S3 for tests: moto's server, and a proxy before it that checks signatures and does what real servers and networks do
now and then."""

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote_plus

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEY, SECRET, TOKEN = "AKIATESTOFTRAINOPT", "secret+OfTheTests/1", "session+Of/The+Tests"
VARIABLES = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
NO_VARIABLES = """AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_REGION AWS_DEFAULT_REGION AWS_ROLE_ARN
http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY""".split()


def wait_for_port(port, process, name):
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < end, f"{name} does not start"
            time.sleep(0.05)


def client_of(port):
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )


class Moto:
    """Buckets in memory, on a free port of this machine."""

    def __init__(self):
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            self.port = chosen.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = client_of(self.port)
        wait_for_port(self.port, self.process, "moto")
        self.client.create_bucket(Bucket="data")

    def put(self, path, key):
        self.client.put_object(Bucket="data", Key=key, Body=path.read_bytes(), ACL="public-read")

    def stop(self):
        self.process.kill()
        self.process.wait()


def error_body(code, more=""):
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message>{more}</Error>".encode()


def signature_of(handler):
    """The signature that botocore computes for the request, from the headers that were signed."""
    sent = handler.headers["authorization"]
    names = re.search(r"SignedHeaders=([^,]*)", sent)[1].split(";")
    path, _, query = handler.path.partition("?")
    request = AWSRequest(method=handler.command, url=f"http://{handler.headers['host']}{path}")
    pairs = [each.partition("=") for each in query.split("&") if each]
    request.params = {unquote_plus(name): unquote_plus(value) for name, _, value in pairs}
    for name in names:
        request.headers[name] = handler.headers[name]
    request.context["timestamp"] = handler.headers["x-amz-date"]
    region = re.search(r"Credential=[^/]*/\d+/([^/]*)/", sent)[1]
    auth = S3SigV4Auth(Credentials(KEY, SECRET, TOKEN), "s3", region)
    request.url = f"http://{handler.headers['host']}{path}"
    return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)


class Proxy(ThreadingHTTPServer):
    """Before each request `fault(handler, number)` may answer in its place, and returns True then. `number` counts GET
    requests of objects from 0."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.fault, self.lock = port, None, threading.Lock()
        self.requests, self.gets, self.wrong_signatures = [], 0, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):  # clients may leave
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, headers=(), body=b"", cut=None):
        """`cut`: send only so many bytes of the body, then close the connection."""
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def forwarded(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        connection.request(self.command, self.path, headers=dict(self.headers))
        response = connection.getresponse()
        body = response.read()
        skipped = ("connection", "transfer-encoding", "date", "server")
        return response.status, [each for each in response.getheaders() if each[0].lower() not in skipped], body

    def do_GET(self):
        proxy = self.server
        is_object = self.command == "GET" and "list-type=" not in self.path
        with proxy.lock:
            proxy.requests.append((self.command, self.path, dict(self.headers)))
            number = proxy.gets
            proxy.gets += is_object
        if "authorization" in self.headers and not self.headers["authorization"].endswith(signature_of(self)):
            proxy.wrong_signatures.append(self.path)
        if proxy.fault and proxy.fault(self, number if is_object else -1):
            return
        self.answer(*self.forwarded())

    do_HEAD = do_GET


@contextmanager
def proxy_before(moto):
    proxy = Proxy(moto.port)
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()


def environment(program, **more):
    kept = {name: value for name, value in program.environment().items() if name not in NO_VARIABLES}
    return {**kept, **VARIABLES, "AWS_EC2_METADATA_DISABLED": "true", "HOME": os.fspath(program.folder), **more}
