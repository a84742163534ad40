"""Data in object storage, with and without a cache on a disk: moto's server behind a proxy that checks every signature
with botocore. D14 is a row of the fault table."""

import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import checkpoint, losses, records, wait_until
from test_tar import write_tar
from test_packed import RECIPE

storage = pytest.importorskip("object_storage", reason="moto and boto3 are not installed")


@pytest.fixture(scope="module")
def moto(digits, tmp_path_factory):
    server = storage.Moto()
    folder = tmp_path_factory.mktemp("objects")
    write_tar(folder / "a.tar", digits, count=96)
    server.put(folder / "a.tar", "set/é + 1/a.tar")
    for shard in range(2):
        write_tar(folder / f"{shard}.tar", digits, count=48, folder=f"{shard}/")
        server.put(folder / f"{shard}.tar", f"shards/{shard}.tar")
    server.folder = folder
    yield server
    server.stop()


@pytest.fixture
def proxy(moto):
    with storage.proxy_before(moto) as proxy:
        yield proxy
        assert not proxy.wrong_signatures


def run(trainopt, proxy, path, out, *arguments, **variables):
    trainopt.write("job.yaml", RECIPE.replace("image_folder", "tar").replace("PATH", f"'{path}'"))
    keys = ["data.batch_size=16", "train.max_steps=12"]
    if path.startswith("s3:"):
        keys.append(f"data.storage.endpoint={proxy.url}")
    return trainopt(
        "run", "job.yaml", "--run-dir", out, *keys, *arguments, env=storage.environment(trainopt, **variables)
    )


def gets(proxy):
    return sum(method == "GET" and "list-type" not in path for method, path, _ in proxy.requests)


REMOTE = "s3://data/set/é + 1/a.tar"


def test_a_job_on_remote_files_is_the_job_on_local_ones(trainopt, moto, proxy):
    assert run(trainopt, proxy, str(moto.folder / "a.tar"), "local").code == 0
    assert not proxy.requests
    assert run(trainopt, proxy, REMOTE, "remote", "data.num_workers=2").code == 0
    cache = "data.cache={kind: disk, path: cache, size: 1GiB}"
    assert run(trainopt, proxy, REMOTE, "cold", cache, "data.num_workers=1").code == 0
    cold = gets(proxy)
    assert run(trainopt, proxy, REMOTE, "warm", cache).code == 0
    assert gets(proxy) == cold
    assert run(trainopt, proxy, REMOTE, "memory", "data.cache=memory", "train.max_steps=30").code == 0
    assert gets(proxy) < 2 * 96 + cold  # an epoch has 6 steps
    by_step = [record["cache_hit_pct"] for record in records(trainopt.folder / "memory")]
    assert by_step[0] == 0 and all(pct in (None, 100) for pct in by_step[-3:])
    assert losses(trainopt.folder / "memory")[:12] == losses(trainopt.folder / "local")
    for out in ("remote", "cold", "warm"):
        assert losses(trainopt.folder / out) == losses(trainopt.folder / "local")


def test_the_headers_of_a_tar_file_leave_the_memory_to_its_images(trainopt, moto, proxy):
    size = (moto.folder / "a.tar").stat().st_size
    keys = ["data.cache=memory", f"data.memory_limit={size // 1024 + 1}KiB", "data.batch_size=4"]
    result = run(trainopt, proxy, REMOTE, "out", *keys, "train.max_steps=60")  # an epoch has 24 steps
    assert result.code == 0, result
    by_step = [record["cache_hit_pct"] for record in records(trainopt.folder / "out")]
    assert all(pct in (None, 100) for pct in by_step[30:]), by_step


def test_objects_of_a_folder(trainopt, moto, proxy):
    def show(path, *arguments):
        env = storage.environment(trainopt, AWS_ENDPOINT_URL=proxy.url)
        return trainopt("data", "show", path, *arguments, env=env)

    shown = show("s3://data/shards", "--json")
    assert shown.code == 0 and shown.json()["images"] == 96, shown
    trainopt.is_refusal(show("s3://data/set"), 3, ["the folder contains no *.pack files: s3://data/set"])
    trainopt.write("text.bin", struct.pack("<3I", 5, 70000, 6))
    moto.put(trainopt.folder / "text.bin", "text/a.bin")
    assert show("s3://data/text", "--json").json()["kind"] == "tokens"
    shown = show("s3://data/text", "--json", "--token-bits", 32)
    assert shown.code == 0, shown
    (file,) = shown.json()["files"]
    assert (file["name"], file["tokens"], file["largest"]) == ("s3://data/text/a.bin", 3, 70000)


def test_patterns_lists_and_splits_of_objects(trainopt, moto, proxy):
    def show(*arguments):
        env = storage.environment(trainopt, AWS_ENDPOINT_URL=proxy.url)
        return trainopt("data", "show", *arguments, "--json", env=env)

    assert show("s3://data/shards/*.tar").json()["images"] == 96
    assert show("s3://data/shards/[1-9].tar").json()["images"] == 48
    assert show("s3://data/shards/{0..1}.tar").json()["images"] == 96
    trainopt.write("page.md", "a page")
    moto.put(trainopt.folder / "page.md", "splits/page.md")
    moto.put(moto.folder / "0.tar", "splits/only.tar")
    moto.put(moto.folder / "0.tar", "splits/below/only.tar")
    left_out = show("s3://data/splits").json()["left_out"]
    assert [each["kind"] + " " + each["first"] for each in left_out] == [".md file page.md", "folder below"]
    moto.put(moto.folder / "0.tar", "splits/train-0.tar")
    moto.put(moto.folder / "1.tar", "splits/val-0.tar")
    said = "data.path=s3://data/splits/train-0.tar evaluation.path=s3://data/splits/val-0.tar"
    trainopt.is_refusal(show("s3://data/splits"), 3, [said])
    trainopt.is_refusal(show("s3://data/splits/*.tar"), 3, [said])
    trainopt.is_refusal(show("s3://data/*/x.tar"), 3, ["a pattern must be in a path's last part"])
    trainopt.is_refusal(show("s3://data/splits/none-*.tar"), 3, ["nothing fits the pattern: s3://data/splits/none-*"])
    both = "data.path=[s3://data/shards/0.tar, 's3://data/shards/1*']"
    listed = run(trainopt, proxy, "s3://data/x.tar", "list", both, "train.max_steps=6")
    assert listed.code == 0, listed
    trained = ["evaluation.path=s3://data/shards/0.tar", "evaluation.transforms=[{resize: [28, 28]}]"]
    whole = run(trainopt, proxy, "s3://data/shards", "folder", "train.max_steps=6", *trained)
    assert whole.code == 0, whole
    assert losses(trainopt.folder / "list") == losses(trainopt.folder / "folder")
    assert "the evaluation data is trained on: its file is a training file" in whole.out + whole.err


def test_a_killed_job_resumes_from_remote_files(trainopt, moto, proxy):
    keys = ["data.num_workers=2", "train.max_steps=20", "checkpoint.every_n_steps=4"]
    keys.append("data.cache={kind: disk, path: c, size: 1GiB}")
    assert run(trainopt, proxy, REMOTE, "whole", *keys).code == 0
    killed = run(trainopt, proxy, REMOTE, "again", *keys, "--inject", "kill@10")
    assert killed.code == -signal.SIGKILL, killed
    assert run(trainopt, proxy, REMOTE, "again", *keys, "checkpoint.resume=auto").code == 0
    assert losses(trainopt.folder / "again") == losses(trainopt.folder / "whole")
    whole, again = (checkpoint(trainopt.folder / out, 20) / "rank-0000.safetensors" for out in ("whole", "again"))
    assert whole.read_bytes() == again.read_bytes()


def failing(times, fail):
    """A fault of the first GET requests of objects."""
    return lambda handler, number: fail(handler) if 0 <= number < times else False


def body_of(handler):
    return handler.forwarded()


def short(handler):
    status, headers, body = body_of(handler)
    kept = [each for each in headers if each[0].lower() != "content-length"]
    return handler.answer(status, kept, body[:-10])


def other_range(handler):
    status, headers, body = body_of(handler)
    changed = [(name, "bytes 1-2/3" if name.lower() == "content-range" else value) for name, value in headers]
    return handler.answer(status, changed, body)


PASSING = {
    "500": lambda handler: handler.answer(500, body=storage.error_body("InternalError")),
    "503": lambda handler: handler.answer(503, body=storage.error_body("SlowDown")),
    "reset": lambda handler: handler.answer(*body_of(handler), cut=100),
    "short": short,
    "range": other_range,
    "silent": lambda handler: time.sleep(3) or handler.answer(503),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_changes_nothing(trainopt, moto, proxy, fault):
    proxy.fault = failing(2, PASSING[fault])
    result = run(trainopt, proxy, REMOTE, "out", "data.storage.timeout=1s", "train.max_steps=2")
    assert result.code == 0, result
    assert gets(proxy) > 2


def refused_everywhere(status, code, more="", headers=()):
    return lambda handler, _: handler.answer(
        status, [("x-amz-request-id", "REQUEST7"), *headers], storage.error_body(code, more)
    )


LASTING = {
    "denied": (
        refused_everywhere(403, "AccessDenied"),
        "access is denied to these credentials (status 403, AccessDenied",
    ),
    "elsewhere": (
        refused_everywhere(301, "PermanentRedirect", headers=[("Location", "http://example.invalid/")]),
        "not followed",
    ),
    "down": (
        lambda handler, number: number >= 0 and handler.answer(503, [("x-amz-request-id", "REQUEST7")]),
        "status 503",
    ),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_lasts_ends_the_run(trainopt, moto, proxy, fault):
    proxy.fault, says = LASTING[fault]
    result = run(trainopt, proxy, REMOTE, "out", "data.storage.retries=1")
    trainopt.is_refusal(result, 3, ["s3://data/set/é + 1/a.tar", says, "REQUEST7"])
    assert all("example.invalid" not in headers.get("Host", "") for _, _, headers in proxy.requests)


def test_a_renewal_is_no_way_around_the_retries(trainopt, moto, proxy):
    def fault(handler, number):
        if number < 0:
            return False
        return handler.answer(*((400, [], storage.error_body("ExpiredToken")) if number == 0 else (503,)))

    proxy.fault = fault
    result = run(trainopt, proxy, REMOTE, "out", "data.storage.retries=0")
    trainopt.is_refusal(result, 3, ["a.tar", "status 503"])
    assert gets(proxy) == 2
    proxy.fault = failing(proxy.gets + 1, lambda handler: handler.answer(400, [], storage.error_body("ExpiredToken")))
    assert run(trainopt, proxy, REMOTE, "renewed", "data.storage.retries=0").code == 0


def test_a_server_without_etags_and_with_unnamed_ranges(trainopt, moto, proxy):
    def fault(handler, number):
        status, headers, body = handler.forwarded()
        kept = [each for each in headers if each[0].lower() not in ("etag", "content-range")]
        return handler.answer(200 if status == 206 else status, kept, body)

    proxy.fault = fault
    assert run(trainopt, proxy, REMOTE, "out").code == 0
    assert not any("if-match" in str(headers).lower() for _, _, headers in proxy.requests)


def test_what_is_not_there(trainopt, moto, proxy):
    trainopt.is_refusal(run(trainopt, proxy, "s3://data/none.tar", "a"), 3, ["there is no such object", "none.tar"])
    trainopt.is_refusal(run(trainopt, proxy, "s3://no-bucket/x", "b"), 3, ["no-bucket", "there is no such bucket"])
    trainopt.is_refusal(run(trainopt, proxy, "s3:///x.tar", "c"), 3, ["s3://bucket/key"])
    result = run(trainopt, proxy, REMOTE, "d", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    trainopt.is_refusal(result, 3, ["no AWS credentials; set AWS_ACCESS_KEY_ID"])


def test_an_object_that_is_replaced(trainopt, moto, proxy):
    def replace(handler, number):
        if number == 5:
            moto.put(moto.folder / "1.tar", "changing.tar")
        return False

    moto.put(moto.folder / "a.tar", "changing.tar")
    proxy.fault = replace
    keys = ["data.on_bad_sample=substitute", "data.max_bad_samples=9"]
    result = run(trainopt, proxy, "s3://data/changing.tar", "out", *keys)
    assert result.code == 3 and "s3://data/changing.tar: the object was replaced after it was opened" in result.err


def test_a_credential_is_in_no_file_and_no_message(trainopt, moto, proxy):
    keys = ["logging.sinks=[jsonl, csv]", "logging.report=true"]
    results = [run(trainopt, proxy, REMOTE, "out", *keys)]
    proxy.fault = refused_everywhere(403, "InvalidAccessKeyId")
    results.append(run(trainopt, proxy, REMOTE, "refused"))
    assert [result.code for result in results] == [0, 3], results
    texts = [result.out + result.err for result in results]
    texts += [path.read_bytes().decode(errors="replace") for path in trainopt.folder.rglob("*") if path.is_file()]
    assert len(texts) > 6
    for text in texts:
        assert not any(secret in text for secret in (storage.KEY, storage.SECRET, storage.TOKEN))
    sent = [headers for _, _, headers in proxy.requests]
    assert any(storage.KEY in str(headers) for headers in sent)  # the search can find something
    assert not any(storage.SECRET in str(headers) for headers in sent)


def test_anonymous_requests_are_not_signed(trainopt, moto, proxy):
    result = run(trainopt, proxy, REMOTE, "out", "data.storage.anonymous=true", AWS_ACCESS_KEY_ID="")
    assert result.code == 0, result
    assert not any("authorization" in str(headers).lower() for _, _, headers in proxy.requests)


def test_an_unknown_certificate_is_refused(trainopt, moto, proxy):
    import ssl

    made = subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 "
        "-keyout key.pem -out certificate.pem".split(),
        cwd=trainopt.folder,
        capture_output=True,
    )
    assert made.returncode == 0, made
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trainopt.folder / "certificate.pem", trainopt.folder / "key.pem")
    proxy.socket = context.wrap_socket(proxy.socket, server_side=True)
    endpoint = f"data.storage.endpoint={proxy.url.replace('http', 'https')}"
    trainopt.is_refusal(run(trainopt, proxy, REMOTE, "a", endpoint), 3, ["a.tar", "certificate"])
    trusted = run(trainopt, proxy, REMOTE, "b", endpoint, AWS_CA_BUNDLE=str(trainopt.folder / "certificate.pem"))
    assert trusted.code == 0, trusted


HEADERS = b"HTTP/1.1 200 OK\r\n"
PAGE = (
    "<?xml version='1.0'?><ListBucketResult><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>{0}</NextContinuationToken><Contents><Key>set/{0}.tar</Key><Size>1</Size></Contents>"
    "</ListBucketResult>"
)


class RawServer:
    """Answers each request by what `answer(connection, number)` sends."""

    def __init__(self, answer):
        self.answer, self.requests = answer, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            try:
                while stream.readline():
                    while stream.readline() not in (b"\r\n", b""):
                        pass
                    self.requests += 1
                    self.answer(connection, self.requests)
            except OSError:
                pass


def drip_headers(connection, _):
    connection.sendall(HEADERS)
    while True:
        connection.sendall(b"x-a: b\r\n")
        time.sleep(0.2)


def drip_body(connection, _):
    connection.sendall(HEADERS + b"Content-Length: 1000000\r\nETag: \"v\"\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.2)


def endless_list(connection, number):
    body = PAGE.format(f"{number:09}").encode()
    connection.sendall(HEADERS + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.fixture
def raw_server():
    servers = []
    yield lambda answer: servers.append(RawServer(answer)) or servers[-1]
    for server in servers:
        server.socket.close()


ONCE = ["data.storage.timeout=1s", "data.storage.retries=0"]


@pytest.mark.parametrize("answer", [drip_headers, drip_body], ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("path", [REMOTE, "s3://data/set/"])
def test_an_answer_that_drips_is_a_failure(trainopt, raw_server, answer, path):
    server = raw_server(answer)
    result = run(trainopt, server, path, "out", *ONCE)
    assert result.code == 3 and server.url[7:] not in result.out and "tried 1 times" in result.err, result


def test_a_signal_ends_a_start_that_waits_for_a_server(trainopt, raw_server):
    server = raw_server(drip_headers)
    trainopt.write("job.yaml", RECIPE.replace("image_folder", "tar").replace("PATH", f"'{REMOTE}'"))
    words = ["run", "job.yaml", f"data.storage.endpoint={server.url}", "data.storage.timeout=1h"]
    process = trainopt.start(*words, "data.storage.anonymous=true")
    wait_until(lambda: server.requests, process)
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM


@pytest.mark.full
def test_a_list_that_does_not_end_is_refused(trainopt, raw_server):
    result = run(trainopt, raw_server(endless_list), "s3://data/set/", "out", *ONCE, "data.storage.anonymous=true")
    assert result.code == 3 and "does not end after 100000 pages" in result.err, result
