"""Small images of every format and what CLIP's own processor (on PIL) makes of them.

Writes crates/images/tests/goldens/: the images, and expected.safetensors with one f32 tensor (3, 16, 16) each.
Transparent images are put on white first: PIL alone would drop the alpha channel and show what lies beneath.
"""
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps
from safetensors.numpy import save_file
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

SIDE = 16


def scene(rng, width, height):
    """Soft noise with a few hard edges: what filters and upsampling disagree about."""
    noise = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    soft = np.asarray(Image.fromarray(noise).filter(ImageFilter.GaussianBlur(2.5))).astype(float)
    soft = (soft - soft.mean()) * 5 + 128
    soft[height // 4 : height // 2, width // 4 : width // 2] = (200, 40, 30)
    soft[:, 2 * width // 3 : 2 * width // 3 + 2] = (20, 60, 220)
    return Image.fromarray(np.clip(soft, 0, 255).astype(np.uint8))


def turned(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


def write_images(folder, rng):
    scene(rng, 97, 61).save(folder / "photo.jpg", quality=90)
    scene(rng, 61, 83).save(folder / "progressive.jpg", quality=88, progressive=True)
    scene(rng, 71, 50).convert("L").save(folder / "grey.jpg", quality=90)
    scene(rng, 50, 90).save(folder / "turned.jpg", quality=92, subsampling=0, exif=turned(6))
    scene(rng, 320, 240).filter(ImageFilter.GaussianBlur(1)).save(folder / "large.jpg", quality=60)
    scene(rng, 45, 37).save(folder / "plain.png")
    scene(rng, 45, 37).convert("P", palette=Image.ADAPTIVE, colors=16).save(folder / "palette.png")
    scene(rng, 11, 7).save(folder / "tiny.png", exif=turned(8))
    clear = scene(rng, 40, 40)
    clear.putalpha(Image.linear_gradient("L").resize((40, 40)))
    clear.save(folder / "clear.png")
    scene(rng, 52, 39).save(folder / "lossless.webp", lossless=True)
    scene(rng, 64, 48).save(folder / "lossy.webp", quality=85)
    scene(rng, 38, 50).convert("P", palette=Image.ADAPTIVE, colors=32).save(folder / "still.gif")
    scene(rng, 33, 29).save(folder / "plain.bmp")


def expected(file, processor):
    image = ImageOps.exif_transpose(Image.open(file))
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return processor(image.convert("RGB"), return_tensors="np")["pixel_values"][0].astype(np.float32)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_images(folder, np.random.default_rng(7))
    square = {"height": SIDE, "width": SIDE}
    processor = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=square)
    files = sorted(file for file in folder.iterdir() if file.suffix != ".safetensors")
    save_file({file.name: expected(file, processor) for file in files}, folder / "expected.safetensors")


main()
