"""What a memory plan is asked for: fields, columns and facts."""

from __future__ import annotations

from typing import ClassVar, Final

from tb_sol_plugin.devices.catalog import known_keys
from tb_sol_plugin.metrics.memory.expected import LAYOUT, MODEL, TRAINING, TrainingQuery
from tb_sol_plugin.model.report import Column, Fact

POWERS: Final = ("1", "2", "4", "8", "16", "32", "64")


class MemoryPlanQuery(TrainingQuery, kw_only=True, frozen=True):
    """A model and how it is trained. What is left open is that of the preset, of the recording where one is named, or the default.

    preset: sizes of a published model ("" = as recorded, or LLaMA-7B); single sizes can be changed
    device: key of a device of the table, or a size as 80GB or 80GiB ("" = as recorded, as device_limits say, or H100_SXM)
    base_gb: memory in use beside all this, as context and NCCL, in GB ("" = as recorded, or not counted)
    """

    device: str = ""
    base_gb: float | None = None

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"device": tuple(k for k in known_keys() if k != "CPU")}
    LABELS: ClassVar[dict[str, str]] = TrainingQuery.LABELS | {"device": "Device", "base_gb": "Base memory, GB"}
    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {
        "tp": POWERS[:5], "pp": POWERS[:5], "dp": (*POWERS, "128", "256", "512", "1024"), "micro_batch": POWERS[:6],
        "seq": ("1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072"),
    }  # fmt: skip
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Layout": LAYOUT, "Training": TRAINING, "Model": MODEL, "Device": ("device", "base_gb"),
    }  # fmt: skip


STAGES: Final = (
    Column("stage", "Stage", "", "Pipeline stage, from 0."),
    Column("layers", "Layers", "count", "Layers on the stage.", rank=2),
    Column("microbatches", "Held", "count", "Microbatches whose activations the stage holds at once.", rank=2),
    Column("parameters", "Parameters", "count", "Parameters on one rank of the stage."),
    Column("parameter_bytes", "Parameters", "B", "Bytes of the parameters."),
    Column("gradient_bytes", "Gradients", "B", "Bytes of all gradients, main gradients included."),
    Column("main_gradient_bytes", "Of them main", "B", "FP32 main gradients, within the gradients.", rank=2),
    Column("master_bytes", "Master", "B", "FP32 master weights."),
    Column("optimizer_bytes", "Optimizer", "B", "State of the optimizer beside master weights."),
    Column("state_bytes", "State", "B", "Parameters, gradients, master weights and optimizer state: what stays from step to step.", rank=2),
    Column("activation_bytes", "Activations", "B", "Most activations held at once, logits included."),
    Column("logits_bytes", "Of them logits", "B", "FP32 logits and their gradient, within the activations.", rank=2),
    Column(
        "total_bytes", "Total", "B", "All of it on one rank.", "stack",
        parts=("parameter_bytes", "gradient_bytes", "master_bytes", "optimizer_bytes", "activation_bytes"),
        part_colors=("compute", "communication", "conv", "norm", "attention"),
    ),
    Column("total_gib", "Total, GiB", "", "The same in GiB (2^30 bytes)."),
    Column("state_gib", "State, GiB", "", "The state in GiB (2^30 bytes).", rank=3),
    Column("headroom_bytes", "Left", "B", "Memory of the device less the total and the base.", missing="its memory is not known"),
)  # fmt: skip
FORMULAS: Final = (
    Column("figure", "Figure", "", "What is worked out."),
    Column("stage", "Stage", "", "Pipeline stage it is of.", missing="it is of the whole model"),
    Column("formula", "Formula", "", "How; each letter stands among the inputs.", "code"),
    Column("inputs", "Inputs", "", "What is put in.", "code"),
    Column("count", "Result", "count", "The result where it is a number of things.", missing="the result is in bytes"),
    Column("bytes", "Result", "B", "The result where it is bytes.", missing="the result is a number of things"),
)
DEVICES: Final = (
    Column("device", "Device", "", "Key of the device in the table of device limits.", "code"),
    Column("name", "Name", "", "Name of the device.", rank=2),
    Column("verdict", "Verdict", "", "fits; tight: less than 10 % of its memory would be left; too large.", "badge"),
    Column("share", "Filled", "ratio", "Largest stage and base over the memory of the device.", "efficiency"),
    Column("memory_bytes", "Memory", "B", "Memory of the device."),
    Column("memory_gib", "Memory, GiB", "", "The same in GiB (2^30 bytes).", rank=2),
    Column("headroom_bytes", "Left", "B", "Memory less the largest stage and the base; negative: so much is lacking."),
)
LAYOUTS: Final = (
    Column("layout", "Layout", "", "Tensor parallel, pipeline and data parallel size."),
    Column("micro_batch", "Micro-batch", "count", "Samples of a microbatch."),
    Column("recompute", "Recompute", "", "What the backward pass computes again."),
    Column("verdict", "Verdict", "", "fits; tight: less than 10 % of the memory would be left; too large.", "badge"),
    Column("largest_bytes", "Largest", "B", "The fullest stage.", "bar", color="bar-ink"),
    Column("headroom_bytes", "Left", "B", "Memory of the device less that and the base; negative: so much is lacking."),
    Column("first_bytes", "First", "B", "First stage."),
    Column("middle_bytes", "Middle", "B", "Second stage, the fullest between the ends.", missing="there is no stage between the ends"),
    Column("last_bytes", "Last", "B", "Last stage."),
    Column("imbalance", "Imbalance", "", "Largest of these stages over the smallest."),
    Column("tp", "TP", "count", "Tensor parallel size.", rank=3),
    Column("pp", "PP", "count", "Pipeline stages.", rank=3),
    Column("dp", "DP", "count", "Data parallel size.", rank=3),
    Column("vpp", "VPP", "count", "Chunks per stage.", rank=3),
    Column("microbatches", "Microbatches", "count", "Per step and pipeline.", rank=3, missing="left open: as many as there are stages"),
    Column("id", "Key", "", "Stable key of the row.", rank=3),
)
FACTS: Final = (
    Fact("model", "Model", "", "The model: a preset, with changed sizes where there are any."),
    Fact("model_parameters", "Model", "count", "Parameters of the whole model."),
    Fact("world", "Devices", "count", "Devices of the layout: tp × pp × dp × cp."),
    Fact("bytes_per_parameter", "Bytes per parameter", "", "Bytes of weights, gradients and optimizer per parameter of a rank; d: data "
         "parallel ranks."),
    Fact("largest_stage", "Stage", "", "The fullest pipeline stage."),
    Fact("largest_bytes", "Fullest stage", "B", "What one rank of it is expected to hold."),
    Fact("largest_gib", "Fullest stage, GiB", "", "The same in GiB (2^30 bytes)."),
    Fact("largest_parameter_bytes", "Parameters", "B", "Of it, parameters."),
    Fact("largest_gradient_bytes", "Gradients", "B", "Of it, gradients, main gradients included."),
    Fact("largest_master_bytes", "Master weights", "B", "Of it, master weights."),
    Fact("largest_optimizer_bytes", "Optimizer state", "B", "Of it, state of the optimizer."),
    Fact("largest_activation_bytes", "Activations", "B", "Of it, activations without logits."),
    Fact("largest_logits_bytes", "Logits", "B", "Of it, logits and their gradient."),
    Fact("base_bytes", "Base", "B", "Memory in use beside that, as context and NCCL: given, as recorded, or not counted."),
    Fact("device", "Device", "", "The device it is compared with."),
    Fact("device_bytes", "Device", "B", "Its memory."),
    Fact("device_gib", "Device, GiB", "", "The same in GiB (2^30 bytes)."),
    Fact("headroom_bytes", "Left", "B", "Memory of the device less the largest stage and the base."),
    Fact("verdict", "Verdict", "", "fits; tight: less than 10 % of the memory would be left; too large."),
    Fact("imbalance", "Fullest ÷ emptiest stage", "", "Fullest stage over the emptiest."),
)  # fmt: skip
