"""Open a report in headless Chromium, as a desktop and as a phone, in light and dark mode; fail if anything is wrong.

    python runs/screenshots.py small/report/report.html screenshots

Wrong are a console message, a request for anything but the page itself, and a page wider than the window. The script
talks to Chromium over a pipe (--remote-debugging-pipe), so only the browser has to be installed.
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
MESSAGE_EVENTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    """Chromium at the other end of two pipes; messages are JSON, terminated by a zero byte."""

    def __init__(self, write: BinaryIO, read: BinaryIO) -> None:
        self.write, self.read = write, read
        self.number, self.events = 0, list[dict[str, Any]]()

    def receive(self) -> dict[str, Any]:
        """Read the next message; events are recorded."""
        data = bytearray()
        while not data.endswith(b"\0"):
            byte = self.read.read(1)
            if not byte:
                raise SystemExit("Chromium ended unexpectedly")
            data += byte
        message: dict[str, Any] = json.loads(data[:-1])
        if "method" in message:
            self.events.append(message)
        return message

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and wait for its result."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        self.write.write(json.dumps(request | ({"sessionId": session} if session else {})).encode() + b"\0")
        self.write.flush()
        while (answer := self.receive()).get("id") != self.number:
            pass
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str) -> None:
        """Read messages until an event of this name has arrived."""
        while not any(event["method"] == method for event in self.events):
            self.receive()


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
                browser.call("Browser.close")
        finally:
            process.terminate()
            process.wait()


def check(browser: Browser, page: str, window: tuple[int, int, bool], scheme: str) -> tuple[bytes, list[str]]:
    """Return a screenshot of the whole page and the problems found."""
    width, height, mobile = window
    browser.events.clear()
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.call(f"{domain}.enable", session)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.call("Emulation.setDeviceMetricsOverride", session, **metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", session, features=features)
    browser.call("Page.navigate", session, url=page)
    browser.wait_for("Page.loadEventFired")
    size = browser.call("Page.getLayoutMetrics", session)["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
    shot = browser.call("Page.captureScreenshot", session, captureBeyondViewport=True, clip=clip)["data"]
    problems = [json.dumps(event["params"])[:300] for event in browser.events if event["method"] in MESSAGE_EVENTS]
    requested = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    problems += [f"requests {url[:100]}" for url in requested if url != page and not url.startswith("data:")]
    if size["width"] > width:
        problems.append(f"is {size['width']} pixels wide in a window of {width}")
    browser.call("Target.closeTarget", targetId=target)
    return base64.b64decode(shot), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("page", type=Path, help="HTML file")
    parser.add_argument("output", type=Path, help="folder for the screenshots")
    arguments = parser.parse_args()
    page = arguments.page.resolve(strict=True).as_uri()
    arguments.output.mkdir(parents=True, exist_ok=True)
    count = 0
    with chromium() as browser:
        for device, window in WINDOWS.items():
            for scheme in ("light", "dark"):
                shot, problems = check(browser, page, window, scheme)
                path = arguments.output / f"{device}-{scheme}.png"
                path.write_bytes(shot)
                print(f"{path}: {'; '.join(problems) or 'no problems'}")
                count += len(problems)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
