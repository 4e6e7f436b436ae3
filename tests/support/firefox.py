"""Firefox without windows, driven by the protocol that it speaks itself (Marionette, lines of JSON over TCP): no driver is installed.

https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIREFOX = shutil.which(os.environ.get("TB_SOL_FIREFOX", "firefox-esr")) or ""
_PREFERENCES = {
    "marionette.port": 0,  # a free one, which it writes into its profile
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.enabled": False,
    "app.update.disabledForTesting": True,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 1,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 1,
    "ui.prefersReducedMotion": 1,
}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_WATCH = """
window.solAsked = [];
const observe = (subject) => {
  const channel = subject.QueryInterface(Ci.nsIChannel);
  if (!channel.loadInfo.triggeringPrincipal.isSystemPrincipal) window.solAsked.push(channel.URI.spec);
};
Services.obs.addObserver({ observe }, "http-on-modify-request");
"""
"""Requests that a page makes; those of Firefox itself are its own, and go to a proxy that is not there."""
_FAULTS = """
const wrong = Services.console.getMessageArray().filter((m) => m instanceof Ci.nsIScriptError && !(m.flags & Ci.nsIScriptError.warningFlag));
return [...window.solAsked, ...wrong.filter((m) => /^(file|data|blob|about:srcdoc)/.test(m.sourceName)).map((m) => `${m.errorMessage} (${m.sourceName})`)];
"""


class Firefox:
    """One window. Commands are those of WebDriver; `faults` are requests to the network and errors in a page."""

    def __init__(self, profile: Path, connection: socket.socket) -> None:
        self._profile, self._connection, self._stream, self._sent = profile, connection, connection.makefile("rb"), 0
        self._read()
        self.ask("WebDriver:NewSession", capabilities={"alwaysMatch": {"acceptInsecureCerts": False}})
        self._in_browser(_WATCH)

    def _read(self) -> Any:
        length = b""
        while (one := self._stream.read(1)) != b":":
            assert one, "Firefox ended"
            length += one
        return json.loads(self._stream.read(int(length)))

    def ask(self, command: str, **given: object) -> Any:
        self._sent += 1
        line = json.dumps([0, self._sent, command, given]).encode()
        self._connection.sendall(b"%d:%s" % (len(line), line))
        _, number, error, result = self._read()
        assert number == self._sent and error is None, f"{command}: {error}"
        return result

    def _in_browser(self, script: str, *given: object) -> Any:
        self.ask("Marionette:SetContext", value="chrome")
        found = self.ask("WebDriver:ExecuteScript", script=script, args=given, newSandbox=False)["value"]
        self.ask("Marionette:SetContext", value="content")
        return found

    def open(self, address: str) -> None:
        self.ask("WebDriver:Navigate", url=address)

    def script(self, script: str, *given: object) -> Any:
        return self.ask("WebDriver:ExecuteScript", script=script, args=given)["value"]

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Waits until an expression of the page is true."""
        end = time.monotonic() + seconds
        while not self.script(f"return !!({condition})"):
            assert time.monotonic() < end, f"not so after {seconds} s: {condition}\n{self.script('return document.body.innerText')[:2000]}"
            time.sleep(0.05)

    def find(self, selector: str) -> str:
        return str(self.ask("WebDriver:FindElement", using="css selector", value=selector)["value"][_ELEMENT])

    def click(self, selector: str) -> None:
        self.ask("WebDriver:ElementClick", id=self.find(selector))

    def press(self, selector: str, keys: str) -> None:
        self.ask("WebDriver:ElementSendKeys", id=self.find(selector), text=keys)

    def theme(self, dark: bool) -> None:
        """What a page is told that the person prefers."""
        self._in_browser("Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', arguments[0])", 0 if dark else 1)

    def picture(self) -> bytes:
        return base64.b64decode(self.ask("WebDriver:TakeScreenshot", full=False)["value"])

    def faults(self) -> list[str]:
        return list(self._in_browser(_FAULTS))


@contextlib.contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """Starts Firefox with an empty profile, and ends it."""
    profile.mkdir()
    (profile / "user.js").write_text("".join(f"user_pref({json.dumps(k)}, {json.dumps(v)});\n" for k, v in _PREFERENCES.items()))
    command = [FIREFOX, "--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile", str(profile)]
    env = {**os.environ, "HOME": str(profile), "MOZ_DISABLE_CONTENT_SANDBOX": "1", "MOZ_HEADLESS_WIDTH": "1440", "MOZ_HEADLESS_HEIGHT": "900"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, end = profile / "MarionetteActivePort", time.monotonic() + 120
        while not (port.exists() and port.read_text().strip()):
            assert process.poll() is None and time.monotonic() < end, "Firefox does not start"
            time.sleep(0.05)
        with socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=120) as connection:
            yield Firefox(profile, connection)
    finally:
        process.terminate()
        process.wait(30)
