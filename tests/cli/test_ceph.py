"""Data in a real S3 server: Ceph's gateway, which scripts/setup --full installs."""

import signal

import pytest

from conftest import checkpoint, losses
from test_packed import RECIPE
from test_tar import write_tar

storage = pytest.importorskip("object_storage", reason="moto and boto3 are not installed")
import ceph  # noqa: E402: it needs boto3 too

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(ceph.missing()), reason=f"not installed: {' '.join(ceph.missing())}"),
]


@pytest.fixture(scope="module")
def cluster(digits, tmp_path_factory):
    data = tmp_path_factory.mktemp("objects")
    write_tar(data / "a.tar", digits, count=96)
    write_tar(data / "b.tar", digits, count=48)
    server = ceph.Ceph(tmp_path_factory.mktemp("ceph"))
    try:
        server.data = data
        server.put(data / "a.tar", "set/é + 1/a.tar")
        yield server
    finally:
        server.stop()


def run(trainopt, port, path, out, *arguments, dataset="tar", **variables):
    trainopt.write("job.yaml", RECIPE.replace("image_folder", dataset).replace("PATH", f"'{path}'"))
    keys = ["data.batch_size=16", "train.max_steps=12", f"data.storage.endpoint=http://127.0.0.1:{port}"]
    variables = {"AWS_SESSION_TOKEN": "", **variables}
    keys = keys if path.startswith("s3:") else keys[:2]
    return trainopt(
        "run", "job.yaml", "--run-dir", out, *keys, *arguments, env=storage.environment(trainopt, **variables)
    )


def packed(trainopt, cluster, name):
    path = cluster.data / name
    if not path.exists():
        assert trainopt("data", "pack", cluster.data / "a.tar", path).code == 0
    return path


@pytest.mark.parametrize("dataset, name", [("tar", "a.tar"), ("parquet", "a.parquet"), ("packed", "a.pack")])
def test_a_job_is_killed_resumes_and_is_the_job_on_local_files(trainopt, cluster, dataset, name):
    path = packed(trainopt, cluster, name)
    cluster.put(path, f"job/{name}")
    keys = ["data.num_workers=2", "train.max_steps=20", "checkpoint.every_n_steps=4"]
    remote = [*keys, "data.cache={kind: disk, path: cache, size: 1GiB}"]
    assert run(trainopt, cluster.port, str(path), "local", *keys, dataset=dataset).code == 0
    url = f"s3://data/job/{name}"
    assert run(trainopt, cluster.port, url, "whole", *remote, dataset=dataset).code == 0
    killed = run(trainopt, cluster.port, url, "again", *keys, "--inject", "kill@10", dataset=dataset)
    assert killed.code == -signal.SIGKILL, killed
    assert run(trainopt, cluster.port, url, "again", *keys, "checkpoint.resume=auto", dataset=dataset).code == 0
    whole, again = (checkpoint(trainopt.folder / out, 20) / "rank-0000.safetensors" for out in ("whole", "again"))
    assert whole.read_bytes() == again.read_bytes()
    assert losses(trainopt.folder / "whole") == losses(trainopt.folder / "again") == losses(trainopt.folder / "local")


def test_names_with_other_characters_and_folders(trainopt, cluster):
    assert run(trainopt, cluster.port, "s3://data/set/é + 1/a.tar", "out", "train.max_steps=2").code == 0
    for shard in ("a", "b"):
        cluster.put(cluster.data / f"{shard}.tar", f"shards/{shard}.tar")
    variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{cluster.port}", "AWS_SESSION_TOKEN": ""}
    shown = trainopt("data", "show", "s3://data/shards", "--json", env=storage.environment(trainopt, **variables))
    assert shown.code == 0 and shown.json()["images"] == 144, shown


def test_an_object_that_was_uploaded_in_parts(trainopt, cluster, digits):
    path = cluster.data / "large.tar"
    write_tar(path, digits, count=96)
    with open(path, "r+b") as file:  # what follows the end of the archive is not read
        file.seek(12 << 20)
        file.write(bytes(512))
    cluster.put_in_parts(path, "large.tar")
    etag = cluster.client.head_object(Bucket="data", Key="large.tar")["ETag"]
    assert "-3" in etag, etag
    assert run(trainopt, cluster.port, str(path), "local").code == 0
    assert run(trainopt, cluster.port, "s3://data/large.tar", "remote").code == 0
    assert losses(trainopt.folder / "remote") == losses(trainopt.folder / "local")


def test_an_object_that_is_replaced_ends_the_run(trainopt, cluster):
    cluster.put(cluster.data / "a.tar", "changing.tar")

    def replace(handler, number):
        if number == 5:
            cluster.put(cluster.data / "b.tar", "changing.tar")
        return False

    with storage.proxy_before(cluster) as proxy:
        proxy.fault = replace
        result = run(trainopt, proxy.server_address[1], "s3://data/changing.tar", "out")
    assert result.code == 3 and "s3://data/changing.tar: the object was replaced after it was opened" in result.err


def test_what_the_server_refuses(trainopt, cluster):
    def refused(path, says, **variables):
        trainopt.is_refusal(run(trainopt, cluster.port, path, "out", **variables), 3, says)

    refused("s3://data/none.tar", ["there is no such object", "none.tar"])
    refused("s3://no-bucket/a.tar", ["there is no such bucket", "no-bucket"])
    wrong = "the credentials are not valid"
    refused("s3://data/set/é + 1/a.tar", [wrong, "SignatureDoesNotMatch"], AWS_SECRET_ACCESS_KEY="wrong")
    refused("s3://data/set/é + 1/a.tar", [wrong, "InvalidAccessKeyId"], AWS_ACCESS_KEY_ID="AKIAUNKNOWN")
