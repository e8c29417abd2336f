"""A headless Chromium, driven by the DevTools protocol: https://chromedevtools.github.io."""

import asyncio
import contextlib
import itertools
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

WITHIN = 60.0
"""Seconds; on a busy machine, steps that are normally immediate take many."""


def find_browser() -> str:
    """Return the path of a Chromium, empty if none is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), "")


class Browser:
    """One browser tab.

    Attributes:
        complaints: Errors in the browser's log, and uncaught exceptions of the page.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []

    async def call(self, method: str, **params: Any) -> Any:
        """Send a command and return its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(WITHIN):
            while True:
                said = await self._socket.receive_json()
                if said.get("id") == number:
                    assert "error" not in said, said
                    return said["result"]
                self._note(said)

    def _note(self, said: Any) -> None:
        params = said.get("params") or {}
        match said.get("method"):
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case _:
                pass

    async def go(self, address: str) -> None:
        """Navigate to an address."""
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=address)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        try:
            async with asyncio.timeout(WITHIN):
                while True:
                    if found := await self.evaluate(expression):
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"never: {expression}; the page says: {text}") from None

    async def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            event["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, **event)

    async def names(self, role: str) -> list[str]:
        """Return the accessible names of all elements with a role."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            node["name"]["value"]
            for node in nodes
            if not node["ignored"] and node["role"]["value"] == role
        ]

    async def photograph(self, file: Path, *, width: int, height: int) -> None:
        """Write a screenshot of the page to a file."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        file.write_bytes(b64decode((await self.call("Page.captureScreenshot"))["data"]))


@contextlib.asynccontextmanager
async def open_browser(program: str, profile: Path) -> AsyncIterator[Browser]:
    """Start a browser with a tab, and stop it at the end of the context."""
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless",
        # The tests may run as root, where Chromium's sandbox does not work.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            address = await _tab(session, profile)
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Browser(socket)
    finally:
        process.terminate()
        await process.wait()


async def _tab(session: aiohttp.ClientSession, profile: Path) -> str:
    """Wait until the browser has written its DevTools port, and return the tab's address."""
    note = profile / "DevToolsActivePort"
    async with asyncio.timeout(WITHIN):
        while True:
            said = note.read_text().split() if note.exists() else []
            if said:
                break
            await asyncio.sleep(0.1)
        while True:
            async with session.get(f"http://127.0.0.1:{said[0]}/json/list") as answer:
                tabs = [item for item in await answer.json() if item["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.1)
