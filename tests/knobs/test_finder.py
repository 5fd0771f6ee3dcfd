"""Rules of the finder, each on the smallest document that shows it."""

from pathlib import Path

import pytest

from advisor import config as documents, knobs
from advisor.knobs.registry import LOADER_ARGUMENTS
from advisor.model import Effects
from advisor.patches.patches import NEEDS_WORKERS
from tests.knobs.conftest import find


def test_a_known_look_alike_is_reported_with_its_reason() -> None:
    (trap,) = find("nbs: 64\n").traps
    assert trap.path == "nbs"
    assert trap.document == "config"
    assert "reference" in trap.why


def test_every_knob_explains_itself() -> None:
    (knob,) = find("data: {val: {batch_size: 4}}\n").knobs
    by = "by `batch size` in its name (+6)"
    assert knob.why == f"`batch_size` under `val`: samples of one batch, {by}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("batch_size: 1 # must be 1\n", 'says "must be 1"'),
        ("# do not modify\naccumulate_grad_batches: 1\n", "do not modify"),
        ("batch_size: 8 # must be at most 64 and divisible by 4\n", "at most 64"),
        ("batch_size: 8 # a multiple of 8, keep it as it is\n", "keep it"),
        ("mini_batch_sizes: [8, 5, 4]\n", "list"),
        ("train_micro_batch_size_per_gpu: auto\n", "auto"),
        ("batch_size: ???\n", "???"),
        ("n_batch: null\n", "default"),
    ],
)
def test_what_must_be_left_alone_is_found_but_not_editable(text, reason) -> None:
    frozen = [knob for knob in find(text).knobs if not knob.editable]
    assert len(frozen) == 1
    assert reason in (frozen[0].frozen or "")


@pytest.mark.parametrize(
    "comment", ["per GPU", "batch size of the test loader", "faster with more", "default 8"]
)
def test_a_comment_that_states_no_constraint_freezes_nothing(comment) -> None:
    (knob,) = find(f"batch_size: 8 # {comment}\n").knobs
    assert knob.editable


def test_references_are_no_knobs() -> None:
    found = find(
        """\
        scratch: {train_batch_size: 4}
        base: &bs 8
        data: {batch_size: "${scratch.train_batch_size}"}
        val: {batch_size: *bs}
        eval: {num_workers: "${times:2,4}"}
        optimizer: {lr: "@scratch#rate"}
        """
    )
    assert [knob.path for knob in found.knobs] == ["scratch.train_batch_size"]


COUNTED = [
    ("global_batch_size: 64\n", "sample", "global"),
    ("train_micro_batch_size_per_gpu: 4\n", "sample", "micro"),
    ("per_device_train_batch_size: 4\n", "sample", "device"),
    ("batch_size: 2 # per GPU\n", "sample", "device"),
    ("batch_size: 2 # global batch\n", "sample", "global"),
    ("num_gpus: 4\nbatch_size: 16\n", "sample", "global"),
    ("batch_type: tokens\nbatch_size: 4096\n", "token", None),
    ("max_frames_in_batch: 2000\n", "frame", "device"),
    ("train_num_rays_per_batch: 4096\n", "ray", None),
    ("total_batch_size: 512\nbatch_size_per_gpu: 4\n", "sample", "micro"),
    ("log_prob_micro_batch_size: 4\n", "sample", "micro"),
    ("batch_seconds: 100\n", "second", "device"),
]


def test_what_a_batch_counts_and_who_shares_it() -> None:
    for text, unit, scope in COUNTED:
        knob = [k for k in find(text).knobs if k.kind == "batch_size"][-1]
        assert knob.unit == unit, text
        assert knob.scope == scope, text


PHASES = [
    ("train: {batch_size: 4}\n", "train", "training"),
    ("val_batch_size: 4\n", "eval", "free"),
    ("datasets: {test: {dataloader: {batch_size: 1}}}\n", "test", "free"),
    ("datasets: {train: {val_args: {batch_size: 1}}}\n", "eval", "free"),
    ("lr: 0.1\nbatch_size: 4\n", "train", "training"),
    ("mode: test\nbatch_size: 4\n", "test", "free"),
]


def test_the_phase_decides_the_class_of_a_batch() -> None:
    for text, phase, knob_class in PHASES:
        knob = next(k for k in find(text).knobs if k.kind == "batch_size")
        assert knob.phase == phase, text
        assert knob.knob_class == knob_class, text


def test_one_loader_block_of_a_config_with_both_phases_is_of_any_phase() -> None:
    found = find("DATA_LOADER: {NUM_WORKERS: 8}\nTRAIN: {EPOCHS: 3}\nTEST: {ENABLE: true}\n")
    assert next(k for k in found.knobs if k.kind == "num_workers").phase == "any"


def test_named_files_are_reported_as_the_place_where_values_live() -> None:
    found = find("_BASE_: ../Base.yaml\ndeepspeed: ds.json\ndefaults: [{model: unet}, _self_]\n")
    assert found.files == ("../Base.yaml", "ds.json", "model/unet.yaml")


def test_outputs_are_directories_written_to_not_data_read() -> None:
    found = find(
        """\
        output_dir: runs/a
        data_dir: data/train
        train: {save_dir: ckpt, log_dir: "${output_dir}/log"}
        tokenizer: {path: tok}
        checkpointer: {checkpoint_dir: models/base, output_dir: models/new}
        model: {dir: models/base}
        run: {dir: runs/b}
        upload_dir: s3://bucket/x
        """
    )
    assert found.outputs == ("output_dir", "train.save_dir", "checkpointer.output_dir", "run.dir")


PRECISIONS: list[tuple[str, dict[str, object]]] = [
    ("precision: 32\n", {"float16": 16, "bfloat16": "bf16"}),
    ("precision: 16\n", {"bfloat16": "bf16"}),
    ("precision: 32-true\n", {"float16": "16-mixed", "bfloat16": "bf16-mixed"}),
    ("precision: fp32\n", {"float16": "fp16", "bfloat16": "bf16"}),
    ("dtype: torch.float32\n", {"float16": "torch.float16", "bfloat16": "torch.bfloat16"}),
    ("precision: amp_fp16\n", {"bfloat16": "amp_bf16"}),
    ("amp: false\n", {"bfloat16": True, "float16": True}),
    ("use_half: false\n", {"float16": True}),
    ("fp16: true\n", {}),
    ("mixed_precision: fp8\n", {}),
    ("fp16: {enabled: false}\n", {"float16": True}),
]


def test_only_precisions_of_the_same_family_and_no_more_bits() -> None:
    """In the spelling in use, bfloat16 first: it needs no loss scaling."""
    for text, wanted in PRECISIONS:
        (knob,) = find(text).knobs
        found = knobs.precision_choices(knob)
        assert found == wanted, text
        assert list(found) == sorted(found)


FOUNDING = documents.read(Path(__file__).resolve().parents[2] / "config" / "dem_completion.json")
FOUND = knobs.find(FOUNDING)
TEST_ARGS = "datasets.test.dataloader.args"
SCHEDULE = "model.which_networks[0].args.beta_schedule"


def test_the_knobs_of_the_test_phase_are_free_numeric_or_of_quality() -> None:
    """Those of training are told apart, and what only looks like a knob is none."""
    ours = {k.path: (k.kind, k.knob_class) for k in FOUND.knobs if k.phase == "test"}
    assert ours == {
        f"{TEST_ARGS}.batch_size": ("batch_size", "free"),
        f"{TEST_ARGS}.num_workers": ("num_workers", "free"),
        f"{TEST_ARGS}.pin_memory": ("pin_memory", "free"),
        f"{SCHEDULE}.test.n_timestep": ("timesteps", "quality"),
        "test.precision": ("precision", "numeric"),
    }
    train = FOUND.knob("datasets.train.dataloader.args.batch_size")
    assert train.phase == "train"
    assert train.knob_class == "training"
    traps = {trap.path for trap in FOUND.traps}
    assert {f"{SCHEDULE}.train.n_timestep", f"{SCHEDULE}.test.linear_end"} <= traps
    assert not traps & {knob.path for knob in FOUND.knobs}


@pytest.mark.parametrize("argument", LOADER_ARGUMENTS, ids=lambda argument: argument.kind)
def test_every_reader_knows_an_argument(argument) -> None:
    """A config key of its name is the knob with its links; effects and patches know it too."""
    value = "true" if isinstance(argument.default, bool) else "4"
    workers = "" if argument.kind == "num_workers" else "num_workers: 2\n"
    found = find(f"batch_size: 8\n{argument.kind}: {value}\n{workers}")
    knob = found.knob(argument.kind)
    assert knob.kind == argument.kind
    assert knob.knob_class == argument.class_in(knob.phase)
    needing = {link.paths[0] for link in found.links if link.kind == "needs-workers"}
    assert (argument.kind in needing) == ("workers" in argument.needs)

    assert argument.observed(Effects()) is None
    field = argument.effect or ""
    if hasattr(Effects(), field):
        assert argument.observed(Effects(**{field: 4})) == 4
    else:
        assert argument.observed(Effects(loader_arguments=((field, False),))) is False

    assert (argument.kind in NEEDS_WORKERS) == ("workers" in argument.needs)


@pytest.mark.parametrize(
    ("text", "path", "phase"),
    [
        ("lr: 0.1\nsw_batch_size: 1\nroi_size: [96, 96]\n", "sw_batch_size", "eval"),
        ("sliding_batch_size: 1\noverlap: 0.5\n", "sliding_batch_size", "test"),
        ("model_name: x\nencode_batch_size: 8\n", "encode_batch_size", "test"),
        ("lr: 0.1\ninference_batch_size: 8\n", "inference_batch_size", "test"),
    ],
)
def test_a_batch_of_windows_or_of_an_inference_changes_no_training(text, path, phase) -> None:
    (knob,) = [knob for knob in find(text).knobs if knob.path == path]
    assert knob.kind == "batch_size"
    assert knob.phase == phase
    assert knob.knob_class == "free"


def test_the_cache_of_a_generation_is_a_setting_and_that_of_a_loader_is_none() -> None:
    assert [k.kind for k in find("use_cache: false\nmax_new_tokens: 8\n").knobs] == ["kv_cache"]
    assert find("use_cache: false\nbuild_dir: out\n").knobs == ()
