"""How long an item is and how large an image: the words of both, and what stands beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


SIDES = [
    ("roi_x: 96\nroi_y: 96\nroi_z: 64", 3),
    ("roi_x: 96\nroi_y: 40\nroi_w: 200\nroi_h: 200", 0),
    ("train: {crop_x: 256, crop_y: 192}", 2),
    ("slide: {patch_px: 256}", 1),
    ("slide: {tile_px: 512, stride_px: 256, margin_px: 64, patch_um: 128}", 1),
    ("training: {train_ps: 256, val_ps: 192}", 2),
    ("train_patch_size: 192", 1),
    ("train_patch_size: 4", 0),
    ("model: {train_patch_size: 192}", 0),
    ("data: {batch_size: 1, width: 64, height: 64, eval_width: 512, eval_height: 512}", 4),
    ("eval_width: 512\neval_height: 512", 0),
    ("transforms: [{RecResizeImg: {image_shape: [3, 48, 320]}}]", 1),
    ("global: {image_shape: [3, 224, 224]}", 0),
    ("data: {input_shape: [96, 96, 3]}", 1),
    ("model: {input_shape: [96, 96, 3]}", 0),
    ("data: {input_shape: [3, 4, 96]}", 0),
    ("data: {search: {size: 256}, template: {size: 128}}", 2),
    ("search: {size: 256}", 0),
    ("test: {search_size: 256, template_size: 128}", 2),
    ("data: {sample_size: 120000}", 0),
    ("train: {volume_shape: [96, 96, 64]}", 1),
]


@pytest.mark.parametrize(("text", "count"), SIDES)
def test_sides_are_told_by_axes_units_and_phases(
    text: str, count: int, kinds: Callable[..., dict[str, str]]
) -> None:
    """The axes beside each other, pixels as the unit, a patch of one phase of the program."""
    assert list(kinds(text + "\n").values()).count("image_size") == count
