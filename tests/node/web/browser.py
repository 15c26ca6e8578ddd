"""Chromium without a window, driven by selenium, as a reader with eyes, a keyboard or a screen reader."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

from pykraft.testing.processes.waits import PATIENCE_S

_PACKAGES: Final = ("chromium", "chromium-driver")
_PROGRAMS: Final = ("chromium", "chromedriver")
_INSTALL_TIMEOUT_S: Final = 600
_TALLEST_PX: Final = 6_000
_NAMED: Final = frozenset(
    "button checkbox combobox link searchbox spinbutton textbox DisclosureTriangle"
    " region figure image".split()
)


class Browser:
    """One window. Pictures of it are written into ``pictures``."""

    def __init__(self, driver: webdriver.Chrome, pictures: Path) -> None:
        self._driver = driver
        self._pictures = pictures
        self.look()

    def look(
        self,
        width: int = 1_200,
        height: int = 900,
        *,
        dark: bool = False,
        scripts: bool = True,
        scrollbars: bool = True,
    ) -> None:
        """Set the size of the window, the reader's preferences, and whether it runs scripts."""
        self._size = width, height
        self._resize(height)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self._driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self._driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": not scrollbars})

    def _resize(self, height: int) -> None:
        width = self._size[0]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, address: str) -> None:
        self._driver.get(address)

    def click(self, selector: str) -> None:
        """Click what the selector finds first, which leads to no other page."""
        self._driver.find_element(By.CSS_SELECTOR, selector).click()

    def follow(self, selector: str) -> None:
        """Click what the selector finds first, and wait for the page that it leads to: a click may be over
        before its request has begun.
        """
        before = self._driver.find_element(By.TAG_NAME, "html")
        self.click(selector)
        # Between two documents the driver may answer with an error of its own.
        wait = WebDriverWait(self._driver, PATIENCE_S, ignored_exceptions=[WebDriverException])
        wait.until(staleness_of(before))

    def wait_for(self, selector: str) -> None:
        """Until the page has something that the selector finds."""
        WebDriverWait(self._driver, PATIENCE_S).until(lambda _: self.count(selector))

    def fill(self, selector: str, text: str) -> None:
        field = self._driver.find_element(By.CSS_SELECTOR, selector)
        field.clear()
        field.send_keys(text)

    @property
    def address(self) -> str:
        return str(self._driver.current_url)

    @property
    def text(self) -> str:
        """What is to be read."""
        return self._driver.find_element(By.TAG_NAME, "body").text

    @property
    def is_dark(self) -> bool:
        colour = str(self.evaluate("getComputedStyle(document.body).backgroundColor"))  # rgb(1, 2, 3)
        return sum(map(int, colour[4:-1].split(","))) < 3 * 128

    def count(self, selector: str) -> int:
        return len(self._driver.find_elements(By.CSS_SELECTOR, selector))

    def evaluate(self, expression: str) -> Any:
        return self._driver.execute_script(f"return {expression}")

    def tab(self) -> str:
        """Press the key; what is focused then, as tag and text."""
        self._driver.switch_to.active_element.send_keys(Keys.TAB)
        return str(
            self.evaluate(
                "(it => it.tagName + ' ' + (it.innerText || it.name || it.getAttribute('aria-label') || ''))"
                "(document.activeElement)"
            )
        ).strip()

    def press(self, key: str) -> None:
        self._driver.switch_to.active_element.send_keys(key)

    def nameless(self) -> list[str]:
        """The roles of what can be used or is a picture, and has no name for those who do not see it."""
        nodes = self._driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            role
            for node in nodes
            if not node.get("ignored")
            and (role := node.get("role", {}).get("value", "")) in _NAMED
            and not node.get("name", {}).get("value", "").strip()
        ]

    def overflows(self) -> bool:
        """Whether the page as a whole can be scrolled to the side."""
        return bool(
            self.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        )

    def complaints(self) -> list[str]:
        """What the browser has reported since the last call: errors of scripts, what the policy forbids."""
        return [str(entry["message"]) for entry in self._driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def shown(self, name: str) -> None:
        """A picture of what the window shows."""
        self._driver.save_screenshot(str(self._pictures / f"{name}.png"))

    def picture(self, name: str) -> None:
        """Of the whole page."""
        height = int(self.evaluate("document.documentElement.scrollHeight"))
        self._resize(min(max(height, self._size[1]), _TALLEST_PX))
        self.shown(name)
        self._resize(self._size[1])


@contextmanager
def browser(pictures: Path) -> Iterator[Browser]:
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver, pictures)
    finally:
        driver.quit()


def need_browser() -> None:
    """Install it where that is possible (Debian, root), or skip the test loudly."""
    if all(map(shutil.which, _PROGRAMS)):
        return
    what = f"THE CONSOLE IS NOT TESTED IN A BROWSER: apt-get install {' '.join(_PACKAGES)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(what)
    for command in (["update"], ["install", "-y", "--no-install-recommends", *_PACKAGES]):
        done = subprocess.run(
            ["apt-get", "-qq", *command],
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"{what}: {done.stderr.strip()[-300:]}")
