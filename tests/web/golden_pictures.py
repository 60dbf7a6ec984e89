"""What the first screen of each recorded incident looks like, and how far two such pictures may differ."""

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page

from bench.page_browser import PATIENCE_MS
from forkpoint.model.verdict import Verdict
from forkpoint.report.page import render_html

GOLDEN = Path(__file__).parent / "golden"
INCIDENTS = ("0001", "0002", "0003", "0004", "0005", "0006")

BLOCK = 8
"""Pictures are compared in blocks of so many pixels: how letters are smoothed differs between machines."""

_PIXELS = """async (png) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: image.width, height: image.height });
  canvas.getContext("2d").drawImage(image, 0, 0);
  const { data } = canvas.getContext("2d").getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let at = 0; at < data.length; at += 32768) text += String.fromCharCode(...data.subarray(at, at + 32768));
  return btoa(text);
}"""
_COMPARE = """async ([one, two, block]) => {
  const load = async (data) => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(image.width / block);
    canvas.height = Math.ceil(image.height / block);
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return { width: image.width, height: image.height, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
  };
  const [left, right] = [await load(one), await load(two)];
  if (left.width !== right.width || left.height !== right.height) return 1;
  let differ = 0;
  for (let i = 0; i < left.data.length; i += 4) {
    const most = Math.max(...[0, 1, 2].map((c) => Math.abs(left.data[i + c] - right.data[i + c])));
    if (most > 40) differ++;
  }
  return differ / (left.data.length / 4);
}"""


def photograph(browser: Browser, verdict: Verdict, folder: Path) -> bytes:
    file = folder / "report.html"
    file.write_text(render_html(verdict), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1200, "height": 1600}, device_scale_factor=1)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    picture = page.screenshot(animations="disabled")
    context.close()
    return picture


def packed(page: Page, png: bytes) -> bytes:
    """The same picture with 16 shades per channel, which the comparison does not see: as small as it gets, to be kept."""
    raw = base64.b64decode(page.evaluate(_PIXELS, base64.b64encode(png).decode()))
    width, height = struct.unpack_from(">II", png, 16)
    shades = np.frombuffer(raw, np.uint8).reshape(height, width, 4)[:, :, :3] // 17 * 17
    lines = np.concatenate([np.zeros((height, 1), np.uint8), shades.reshape(height, -1)], axis=1)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(lines.tobytes(), 9),
        b"IEND": b"",
    }
    return png[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


def share_that_differs(page: Page, one: bytes, two: bytes) -> float:
    """Of all blocks. The browser decodes the pictures, so that no image library is needed."""
    pictures = [base64.b64encode(picture).decode() for picture in (one, two)]
    return page.evaluate(_COMPARE, [*pictures, BLOCK])
