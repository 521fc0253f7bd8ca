"""Opens a report in headless Chromium, as a desktop and as a phone, in light and dark; fails if anything is amiss.

    python runs/screenshots.py small/report/report.html screenshots

Amiss are a message in the console, a request for anything but the page itself, and a page wider than the window.
Chromium is spoken to over a pipe (--remote-debugging-pipe), so nothing but the browser has to be installed.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WINDOWS = {"desktop": (1280, 800, False), "phone": (390, 844, True)}
COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    """Chromium at the other end of two pipes: JSON, a zero byte after each message."""

    def __init__(self, write: BinaryIO, read: BinaryIO) -> None:
        self.write, self.read = write, read
        self.number, self.events = 0, list[dict[str, Any]]()

    def hear(self) -> dict[str, Any]:
        """The next message; events are kept."""
        data = bytearray()
        while not data.endswith(b"\0"):
            byte = self.read.read(1)
            if not byte:
                raise SystemExit("Chromium has ended")
            data += byte
        message: dict[str, Any] = json.loads(data[:-1])
        if "method" in message:
            self.events.append(message)
        return message

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and wait for its result."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        self.write.write(json.dumps(request | ({"sessionId": session} if session else {})).encode() + b"\0")
        self.write.flush()
        while (answer := self.hear()).get("id") != self.number:
            pass
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str) -> None:
        """Listen until an event of this name has come."""
        while not any(event["method"] == method for event in self.events):
            self.hear()


@contextmanager
def chromium() -> Iterator[Browser]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit(f"none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)")
    (its_in, our_out), (our_in, its_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        shell = ["sh", "-c", f'exec "$@" 3<&{its_in} 4>&{its_out}', "sh", *command]
        process = subprocess.Popen(shell, pass_fds=(its_in, its_out), stderr=subprocess.DEVNULL)
        os.close(its_in)
        os.close(its_out)
        try:
            with os.fdopen(our_out, "wb") as write, os.fdopen(our_in, "rb") as read:
                browser = Browser(write, read)
                yield browser
                browser.ask("Browser.close")
        finally:
            process.terminate()
            process.wait()


def look(browser: Browser, page: str, window: tuple[int, int, bool], scheme: str) -> tuple[bytes, list[str]]:
    """A picture of the whole page, and what is amiss."""
    width, height, mobile = window
    browser.events.clear()
    target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
    session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.ask(f"{domain}.enable", session)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.ask("Emulation.setDeviceMetricsOverride", session, **metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.ask("Emulation.setEmulatedMedia", session, features=features)
    browser.ask("Page.navigate", session, url=page)
    browser.wait_for("Page.loadEventFired")
    size = browser.ask("Page.getLayoutMetrics", session)["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
    shot = browser.ask("Page.captureScreenshot", session, captureBeyondViewport=True, clip=clip)["data"]
    found = [json.dumps(event["params"])[:300] for event in browser.events if event["method"] in COMPLAINTS]
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    found += [f"asks for {url[:100]}" for url in asked if url != page and not url.startswith("data:")]
    if size["width"] > width:
        found.append(f"is {size['width']} pixels wide in a window of {width}")
    browser.ask("Target.closeTarget", targetId=target)
    return base64.b64decode(shot), found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("page", type=Path, help="an HTML file")
    parser.add_argument("output", type=Path, help="a folder for the pictures")
    arguments = parser.parse_args()
    page = arguments.page.resolve(strict=True).as_uri()
    arguments.output.mkdir(parents=True, exist_ok=True)
    amiss = 0
    with chromium() as browser:
        for device, window in WINDOWS.items():
            for scheme in ("light", "dark"):
                shot, found = look(browser, page, window, scheme)
                path = arguments.output / f"{device}-{scheme}.png"
                path.write_bytes(shot)
                print(f"{path}: {'; '.join(found) or 'nothing amiss'}")
                amiss += len(found)
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main())
