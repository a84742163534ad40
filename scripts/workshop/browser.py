"""A page in headless Chromium, driven by the DevTools protocol over two pipes; needs no package.

with Page("report.html", width=1024, theme="dark") as page: page.evaluate("document.title")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PATIENCE_S = 300
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# $0 and $1 are the ends of our pipes; Chromium reads its file 3 and writes its file 4.
START = 'exec "${@:3}" 3<&"$1" 4>&"$2"'


def program():
    """The path of Chromium or Chrome; None if there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """`errors` collects what the page wrote to the console as an error, and exceptions."""

    def __init__(self, path, width=1024, height=800, theme="light", script=True):
        self.url = Path(path).resolve().as_uri()
        self.size, self.theme, self.script = (width, height), theme, script
        self.errors, self.events, self.messages, self.rest = [], [], 0, b""

    def __enter__(self):
        read, self.commands = os.pipe()
        self.answers, write = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        chromium = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                    "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars",
                    f"--user-data-dir={self.profile.name}"]
        self.process = subprocess.Popen(["bash", "-c", START, "start", str(read), str(write), *chromium],
                                        pass_fds=(read, write), stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setScriptExecutionDisabled", value=not self.script)
        self.resize(*self.size)
        self.show(self.theme)
        self.load()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    session = None

    def call(self, method, **parameters):
        """The result of one command; raises RuntimeError if Chromium refuses it."""
        self.messages += 1
        message = {"id": self.messages, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.messages:
            self.note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def receive(self):
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], PATIENCE_S)[0]:
                raise RuntimeError(f"Chromium has said nothing for {PATIENCE_S} s")
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        method, values = event.get("method"), event.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and values["type"] == "error":
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append(values["entry"]["text"])

    def load(self):
        self.events.clear()
        self.call("Page.navigate", url=self.url)
        self.wait_for_load()

    def wait_for_load(self):
        while "Page.loadEventFired" not in self.events:
            self.note(self.receive())

    def resize(self, width, height):
        self.size = (width, height)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def show(self, theme):
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # so that no scrolling is under way
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}, still])

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def press(self, *keys):
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path, whole=True):
        """`whole`: all of the page, however long; otherwise the size of the window."""
        area = {}
        if whole:
            height = min(16000, self.evaluate("document.documentElement.scrollHeight"))
            area = {"clip": {"x": 0, "y": 0, "width": self.size[0], "height": height, "scale": 1},
                    "captureBeyondViewport": True}
        data = self.call("Page.captureScreenshot", format="png", **area)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def pdf(self, path):
        data = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        Path(path).write_bytes(base64.b64decode(data))
