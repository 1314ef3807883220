"""Keeping pictures of pages: a new one only where the old one shows something else."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["keep"]

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"


async def keep(page: Page, name: str, *, within: float = 0.0001) -> None:
    """Write the picture, unless the one that is there differs from it in no more than this share."""
    picture = await page.screenshot(animations="disabled", caret="hide")
    file = IMAGES / f"{name}.png"
    if file.exists() and await differing(page, file.read_bytes(), picture) < within:
        return
    IMAGES.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture)


async def differing(page: Page, *pictures: bytes) -> float:
    """Return the share of values in which two pictures differ by more than the edges of some letters."""
    await page.goto("about:blank")
    sources = [f"data:image/png;base64,{b64encode(picture).decode()}" for picture in pictures]
    share: float = await page.evaluate(DIFFERING, sources)
    return share


DIFFERING: Final = """async (sources) => {
  const [one, two] = await Promise.all(sources.map(async (source) => {
    const image = Object.assign(new Image(), { src: source });
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    return canvas.getImageData(0, 0, image.width, image.height);
  }));
  if (one.width !== two.width || one.height !== two.height) return 1;
  let count = 0;
  for (let at = 0; at < one.data.length; at += 1) count += Math.abs(one.data[at] - two.data[at]) > 8;
  return count / one.data.length;
}"""
