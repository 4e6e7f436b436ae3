"""What can be asked of expected memory, and what its tables hold."""

from __future__ import annotations

from typing import ClassVar, Final

from tb_sol_plugin.metrics.memory.expected import LAYOUT, MODEL, TRAINING, TrainingQuery
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.model.report import Column


class MemoryExpectedQuery(TrainingQuery, kw_only=True, frozen=True):
    """Sizes of the model and its layout. What is left open is as recorded; what is said here stands over it.

    preset: sizes of a published model in place of the recorded ones
    """

    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {"Model": MODEL, "Layout": LAYOUT, "Training": TRAINING}
    SELDOM: ClassVar[tuple[str, ...]] = (*TrainingQuery.SELDOM, "sequence_parallel")


PARTS: Final = (
    Column("rank", "Rank", doc="rank of the worker, as recorded or as its name says", missing="not known"),
    Column("stage", "Stage", doc="pipeline stage of the rank, from 0", missing="not known"),
    Column("part", "Part", doc="what is held; main parameters are the FP32 master weights", show="text"),
    Column("expected_bytes", "Expected", "B", "by formula, of a rank of this stage",
           missing="there is no formula for it, or sizes for it are not known"),
    Column("actual_bytes", "Actual", "B", "as recorded", missing="not recorded: the last column says how to"),
    Column("difference_bytes", "Difference", "B", "actual less expected", missing="one of the two is not known"),
    Column("of_expected", "Difference", "ratio", "difference over expected",
           missing="one of the two is not known, or nothing is expected"),
    Column("verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("formula", "Formula", doc="how the expected bytes are worked out; the table of formulas has all steps", show="code",
           missing="no formula"),
    Column("inputs", "Inputs", doc="what was put in", show="code", rank=3, missing="no formula"),
    Column("source", "Actual from", doc="where the actual bytes are from, or what would tell them", show="text", rank=2),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
    Column("tp", "TP", doc="tensor parallel rank and size", rank=3, missing="not recorded"),
    Column("dp", "DP", doc="data parallel rank and size", rank=3, missing="not recorded"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
CAPTURED: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("Actual_Captured_Master_Weight_MB", "Actual_Captured_Master_Weight_MB",
           doc="FP32 master weights on this rank, in MiB, as Megatron prints them", missing="no optimizer was looked at"),
    Column("Actual_Captured_Main_Grad_Mem_MB", "Actual_Captured_Main_Grad_Mem_MB", doc="FP32 main gradients on this rank, in MiB",
           missing="no optimizer was looked at"),
    Column("parameters", "Parameters", "count", "parameters that the program counted on this rank", missing="the model was not looked at"),
    Column("expected_parameters", "By formula", "count", "parameters that the formula gives a rank of its stage",
           missing="sizes of the model are not known"),
    Column("parameters_verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("unknown_bytes", "Unknown", "B", "of all that was in use at the largest record, what nothing explains; negative: something is "
           "counted twice", missing="not recorded"),
    Column("in_all_bytes", "In all", "B", "what was in use at that record, which its categories add up to", rank=2, missing="not recorded"),
    Column("in_all_of", "Of", doc="what that is: device_used, allocated, or process_used (of a CPU)", show="code", rank=2,
           missing="not recorded"),
    Column("Actual_Captured_Master_Weight_bytes", "Master weights", "B", "FP32 master weights, exactly", rank=3,
           missing="no optimizer was looked at"),
    Column("Actual_Captured_Main_Grad_Mem_bytes", "Main gradients", "B", "FP32 main gradients, exactly", rank=3,
           missing="no optimizer was looked at"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
RECORDS: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("tag", "Record", doc="name that the program gave the record; iteration: made at the end of one", show="code"),
    Column("iteration", "Iteration", "", "iteration that ran", missing="before the first one"),
    Column("total_bytes", "In use", "B", "what the categories add up to, exactly", show="stack",
           parts=("base_context_bytes", "nccl_bytes", "others_bytes", "params_bytes", "gradients_bytes", "master_weights_bytes",
                  "optimizer_bytes", "buffers_bytes", "fragmentation_bytes", "unknown_bytes"),
           part_colors=("host", "DtoD", "memset", "compute", "communication", "conv", "norm", "gemm", "bar-ink", "idle")),
    Column("of", "Of", doc="device_used: the device; allocated: the allocator; process_used: the process, of a CPU", show="code", rank=2),
    Column("base_context_bytes", "Base", "B", "context of the device; of a CPU the process before the model", missing="not recorded"),
    Column("nccl_bytes", "NCCL", "B", "what came with the process group: the gain between records before the first iteration", rank=2,
           missing="no second record before the first iteration"),
    Column("others_bytes", "Others", "B", "other processes on the device", rank=2, missing="the driver does not tell"),
    Column("params_bytes", "Parameters", "B", "parameters", missing="not looked at"),
    Column("buffers_bytes", "Buffers", "B", "buffers of the model", rank=3, missing="not looked at"),
    Column("gradients_bytes", "Gradients", "B", "gradients and main gradients", missing="not looked at"),
    Column("master_weights_bytes", "Master", "B", "master weights", missing="no optimizer was looked at"),
    Column("optimizer_bytes", "Optimizer", "B", "both moments and other state of the optimizer", missing="no optimizer was looked at"),
    Column("fragmentation_bytes", "Held", "B", "reserved by the allocator, and not in use", rank=2, missing="not recorded"),
    Column("unknown_bytes", "Unknown", "B", "the rest, activations among it; negative: something is counted twice"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
SIZES: Final = (
    Column("name", "Size", doc="as it is called in the plan", show="code"),
    Column("value", "Value", doc="what the formulas are given"),
    Column("from", "From", doc="asked for, recorded (and where it stood), of the preset, or assumed since nobody says", show="text"),
)
FORMULAS: Final = (
    Column("figure", "Figure", doc="what is worked out", show="text"),
    Column("stage", "Stage", doc="pipeline stage it is of", missing="it is of the whole model"),
    Column("formula", "Formula", doc="how; each letter stands among the inputs", show="code"),
    Column("inputs", "Inputs", doc="what is put in", show="code"),
    Column("count", "Result", "count", "the result where it is a number of things", missing="the result is in bytes"),
    Column("bytes", "Result", "B", "the result where it is bytes", missing="the result is a number of things"),
)
TABLES: Final = {"parts": PARTS, "captured": CAPTURED, "records": RECORDS, "sizes": SIZES, "formulas": FORMULAS, "left_out": peers.LEFT_OUT}
FACTS: Final = {
    "workers": "workers of the run",
    "workers_read": "those whose recording could be read",
    "expected_bytes": "expected on the rank whose actual total is the largest (of all ranks where none has one), by formula",
    "actual_bytes": "in use at most on that rank",
    "difference_bytes": "actual less expected",
    "parts_compared": "parts of all ranks that have both an expected and an actual number",
    "parts_ok": "of these, at most 5 % apart",
    "worst_part": "the part whose actual and expected bytes lie farthest apart",
    "worst_rank": "its rank",
    "worst_difference_bytes": "its actual less expected bytes",
    "model_parameters": "parameters of the whole model by formula",
    "Actual_Captured_Master_Weight_MB": "FP32 master weights in MiB, the most of any rank",
    "Actual_Captured_Main_Grad_Mem_MB": "FP32 main gradients in MiB, the most of any rank",
}
