"""A Ceph cluster of one process of each kind, with its data in memory, and its gateway for S3 (Debian's ceph-mon,
ceph-osd and radosgw)."""

import shutil
import signal
import socket
import subprocess
import uuid
from pathlib import Path

from object_storage import KEY, SECRET, client_of, wait_for_port

PROGRAMS = ["ceph", "ceph-mon", "ceph-osd", "ceph-authtool", "monmaptool", "radosgw", "radosgw-admin"]

CONFIGURATION = """
[global]
fsid = {fsid}
mon host = {monitor}
public addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
log file = {folder}/$name.log
crash dir = {folder}
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
osd objectstore = memstore
memstore device bytes = 1073741824
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
mon allow pool size one = true
mon data avail crit = 1
"""


def missing() -> list[str]:
    return [program for program in PROGRAMS if not shutil.which(program)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Ceph:
    """`port`: of the gateway. There is one bucket, data."""

    def __init__(self, folder: Path):
        self.folder, self.servers = folder, []
        v2, v1, self.port = free_ports(3)
        monitor, cluster = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]", str(uuid.uuid4())
        for name in ("mon", "osd", "rgw"):
            (folder / name).mkdir()
        text = CONFIGURATION.format(folder=folder, fsid=cluster, monitor=monitor)
        (folder / "ceph.conf").write_text(text)
        try:
            self.start(monitor, cluster)
        except BaseException:
            self.stop()
            raise

    def start(self, monitor: str, cluster: str) -> None:
        keyring, monmap, osd = self.folder / "keyring", self.folder / "monmap", str(uuid.uuid4())
        self.tool("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        for name in ("client.admin", "client.rgw", "osd.0"):
            caps = [word for part in ("mon", "osd") for word in ("--cap", part, "allow *")]
            self.tool("ceph-authtool", keyring, "--gen-key", "-n", name, *caps)
        self.tool("monmaptool", "--create", "--addv", "a", monitor, "--fsid", cluster, monmap)
        self.tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.serve("ceph-mon", "-i", "a")
        self.tool("ceph", "osd", "new", osd)
        self.tool("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.serve("ceph-osd", "-i", "0")
        self.serve("radosgw", "-n", "client.rgw", "--rgw-frontends", f"beast endpoint=127.0.0.1:{self.port}")
        user = ["--uid", "tests", "--display-name", "tests", "--access-key", KEY, "--secret-key", SECRET]
        self.tool("radosgw-admin", "user", "create", *user)
        wait_for_port(self.port, self.servers[-1], "radosgw")
        self.client = client_of(self.port)
        self.client.create_bucket(Bucket="data")

    def command(self, *words) -> list[str]:
        program, *rest = map(str, words)
        knows_conf = program not in ("ceph-authtool", "monmaptool")
        return [program, *(["-c", str(self.folder / "ceph.conf")] if knows_conf else []), *rest]

    def tool(self, *words) -> None:
        subprocess.run(self.command(*words), check=True, timeout=120, capture_output=True)

    def serve(self, *words) -> None:
        """In the foreground, so that it ends with this process's word and not with its own."""
        with open(self.folder / f"{words[0]}.out", "w") as output:
            self.servers.append(subprocess.Popen(self.command(*words, "-f"), stdout=output, stderr=output))

    def put(self, path: Path, key: str) -> None:
        self.client.put_object(Bucket="data", Key=key, Body=path.read_bytes())

    def put_in_parts(self, path: Path, key: str, part: int = 5 << 20) -> None:
        upload = self.client.create_multipart_upload(Bucket="data", Key=key)["UploadId"]
        where, body, parts = {"Bucket": "data", "Key": key, "UploadId": upload}, path.read_bytes(), []
        for number, begin in enumerate(range(0, len(body), part), 1):
            done = self.client.upload_part(**where, PartNumber=number, Body=body[begin : begin + part])
            parts.append({"ETag": done["ETag"], "PartNumber": number})
        self.client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.send_signal(signal.SIGKILL)
            server.wait()
