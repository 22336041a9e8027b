"""A real Chromium, driven over its DevTools protocol: pages are opened, clicked and looked at."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

_QUIET = "--no-first-run --disable-background-networking --disable-component-update --disable-sync --disable-gpu"
_SECONDS = 60.0


class Chromium:
    """One browser with one tab; what it has to complain about is in `complaints`."""

    def __init__(self, folder: Path) -> None:
        connect = pytest.importorskip("websockets.sync.client", reason="websockets is not installed").connect
        program = shutil.which("chromium")
        if program is None:
            pytest.skip("chromium is not on PATH: pages are not opened in a real browser")
        command = [program, "--headless", "--no-sandbox", *_QUIET.split(), f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen([*command, "--remote-debugging-port=0"], stderr=subprocess.DEVNULL)
        file = folder / "DevToolsActivePort"
        wait(lambda: file.exists() and len(file.read_text().splitlines()) == 2)
        port, path = file.read_text().splitlines()
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._end)
        self._socket = self._stack.enter_context(connect(f"ws://127.0.0.1:{port}{path}", max_size=2**28))
        self._numbers, self.complaints, self.dialogs, self._session = itertools.count(1), [], [], ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        self._stack.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters, **session}))
        while True:
            message = json.loads(self._socket.recv(timeout=_SECONDS))
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(given["exceptionDetails"].get("exception", {}).get("description", given)))
        if message.get("method") == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.complaints.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        if message.get("method") == "Runtime.consoleAPICalled" and given["type"] == "error":
            self.complaints.append(str(given["args"]))
        if message.get("method") == "Page.javascriptDialogOpening":
            self.dialogs.append(given["message"])
            number = next(self._numbers)
            accept = {"id": number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            self._socket.send(json.dumps({**accept, "sessionId": self._session}))

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        mobile = width < 600
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=scheme)

    def offline(self, is_offline: bool = True) -> None:
        """As in an aeroplane."""
        self._call("Network.enable")
        speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._call("Network.emulateNetworkConditions", offline=is_offline, **speed)

    def open(self, address: str) -> None:
        self.run("window.before = true")  # so that the old page is not taken for the new one
        self._call("Page.navigate", url=address)
        self.until("!window.before && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        found = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = _SECONDS) -> Any:
        """Wait until an expression is true."""
        found = f"(() => {{ try {{ return {script} }} catch {{ return null }} }})()"
        return wait(lambda: self.run(found), script, seconds)

    def choose_file(self, selector: str, file: Path) -> None:
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self, out: Path, whole: bool = True) -> None:
        out.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))


def wait(condition: Any, words: str = "", seconds: float = _SECONDS) -> Any:
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"it did not come: {words}"
        time.sleep(0.1)
