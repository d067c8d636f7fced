"""A headless Chromium, told what to do through its debugging pipe: it listens on no port, and needs no package.

CASCADE_TEST_CHROMIUM names the program; without it, one on the PATH is taken.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM: Final = os.environ.get("CASCADE_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Page:
    """One page, and what the browser complained about while it was open."""

    pipe: Any
    answers: Any
    complaints: list[str] = field(default_factory=list)
    sent: int = 0
    session: str | None = None
    loaded: bool = False

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Do something by the debugging protocol (chromedevtools.github.io/devtools-protocol)."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        self.pipe.write(json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0")
        self.pipe.flush()
        while (answer := self._next()).get("id") != self.sent:
            pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        raw = b"".join(iter(lambda: self.answers.read(1), b"\0"))
        message: dict[str, Any] = json.loads(raw)
        self.loaded |= message.get("method") == "Page.loadEventFired"
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(str(message["params"]["entry"]["text"]))
        return message

    def open(self, path: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open a file in a window of so many pixels."""
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.loaded = False
        self.do("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self._next()

    def ask(self, expression: str) -> Any:
        """Return what a JavaScript expression gives; the page's policy is about its own scripts."""
        return self.do("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self) -> bytes:
        """Return the whole page as a PNG."""
        return base64.b64decode(self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])


@contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """Lend a page of a browser of its own."""
    assert CHROMIUM is not None
    theirs, ours = os.pipe()
    mine, answers = os.pipe()
    options = [
        "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--headless",
        "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    started = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash", CHROMIUM, *options],
        pass_fds=(theirs, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(answers)
    with os.fdopen(ours, "wb") as pipe, os.fdopen(mine, "rb") as replies:
        page = Page(pipe, replies)
        try:
            target = page.do("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            page.do("Page.enable")
            page.do("Log.enable")
            yield page
        finally:
            started.terminate()
            started.wait(timeout=20)


def pixels(png: bytes) -> NDArray[np.float32]:
    """Return a picture's colours, (height, width, 3), each in [0, 1]."""
    from matplotlib.image import imread

    return np.asarray(imread(io.BytesIO(png))[:, :, :3], np.float32)


CONTRASTS: Final = """
(() => {
  const channel = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const numbers = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest(".drawing svg") || !e.getClientRects().length) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    const a = light(numbers(e.tagName === "text" ? style.fill : style.color)), b = light(behind(e));
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName, e.textContent.trim().slice(0, 40)]);
  }
  return found;
})()
"""
"""The contrast of each text with what is behind it (w3.org/TR/WCAG21, relative luminance); the figure is a picture."""
