"""How long an item is and how large an image: the words of both, and what stands beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = [
    # what an item is made of, and how many of it
    ("generation: {max_caption_len: 64}", False),
    ("model: {max_token_length: 256}", False),
    ("max_caption_len: 64\nbeam_size: 5", False),
    ("data: {min_sent_length: 16}", False),
    ("data: {token_dim: 256, list_size: 64}", False),
    # what is cut out of sound
    ("data: {chunk_size: 6}", False),
    ("chunk_size: 25\nsample_rate: 24000", False),
    ("data: {truncate_length: 24480}", False),
    ("train: {clip_seconds: 4}", False),
    ("sample_rate: 16000\nencoder: {chunk_size: 16}", False),
    ("sample_rate: 16000\nvad: {min_segment_duration: 1}", False),
    ("sample_rate: 16000\ndecoding: {chunk_size: 16}", False),
    # what a forecast is made from
    ("in_len: 12", False),
    ("env: {obs_len: 8, pred_len: 12}", False),
    ("agent: {hist_len: 50, batch_size: 1024, lr: 0.1}", False),
    ("rank: {hist_len: 50}", False),
    ("model: {max_txt_len: 160}", False),
    ("decoder: {max_len: 128}", False),
    # of a chain of residues
    ("train: {crop_size: 256, flip: true}", False),
    ("call: {max_tokens: 512, prompt_templates: a.txt}", False),
    # of what a model's features were made with
    ("chunk_length: 30\nsampling_rate: 16000\nfeature_size: 80", False),
]


@pytest.mark.parametrize(("text", "is_knob"), LENGTHS)
def test_a_length_is_told_by_what_the_item_is_made_of(
    text: str, is_knob: bool, has: Callable[[str, str], bool]
) -> None:
    """Not that of what is generated, of a model, or a least one."""
    assert has(text, "seq_len") is is_knob


SIDES = [
    ("roi_x: 96\nroi_y: 96\nroi_z: 64", 3),
    ("roi_x: 96\nroi_y: 40\nroi_w: 200\nroi_h: 200", 0),
    ("train: {crop_x: 256, crop_y: 192}", 2),
    ("slide: {patch_px: 256}", 1),
    ("slide: {tile_px: 512, stride_px: 256, margin_px: 64, patch_um: 128}", 1),
    ("training: {train_ps: 256, val_ps: 192}", 2),
    ("cluster: {num_ps: 64}", 0),
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
