"""What model and optimizer hold: bytes worked out by hand, on plain optimizers and on stand-ins that are built as Megatron's, Apex's and
DeepSpeed's are. Linear(10, 5) has 55 parameters, 220 bytes in FP32 and 110 in BF16."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

from tb_sol_plugin.capture.memory.model_state import (  # noqa: E402
    CATEGORIES,
    Storages,
    walk,
)
from tests.support.training_loops import plain, toy  # noqa: E402

FP32, BF16 = 220, 110
TOY = 4 * (2 * 1000 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128)
"""Bytes of the parameters of the toy in FP32: two tables of 1000 x 128; of each of 4 blocks the weights and 9 + 4 times 128 of biases and
norms; the norm at the end."""


def found(model=None, optimizer=None) -> dict[str, int]:
    """Bytes by category, without those of none."""
    result = walk(model, optimizer)
    assert sum(p.view_bytes for p in result.parts) <= sum(p.bytes for p in result.parts)
    return {name: size for name in CATEGORIES if (size := result.bytes_of(name))}


def by_module(result, category: str) -> dict[str, int]:
    return {p.module: p.bytes for p in result.parts if p.category == category}


def trained(model, optimizer, width: int = 10):
    dtype = next(model.parameters()).dtype
    model(torch.ones(2, width, dtype=dtype)).float().sum().backward()
    optimizer.step()
    return model, optimizer


# --- Plain optimizers ---


def test_sgd_has_no_state_but_momentum() -> None:
    # GIVEN a layer of 55 parameters after a step of SGD THEN there are parameters and gradients, and with momentum one more copy
    model = nn.Linear(10, 5)
    assert found(*trained(model, torch.optim.SGD(model.parameters(), lr=0.1))) == {"params": FP32, "grads": FP32}
    momentum = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    assert found(*trained(model, momentum)) == {"params": FP32, "grads": FP32, "other_optimizer": FP32}


def test_adam_holds_two_moments_and_a_count_per_parameter() -> None:
    # GIVEN Adam after a step: weight and bias have a count of one FP32 each
    model = nn.Linear(10, 5)
    sizes = found(*trained(model, torch.optim.Adam(model.parameters())))
    assert sizes == {"params": FP32, "grads": FP32, "exp_avg": FP32, "exp_avg_sq": FP32, "other_optimizer": 2 * 4}
    # AND with amsgrad the maxima too
    amsgrad = torch.optim.Adam(model.parameters(), amsgrad=True)
    assert found(*trained(model, amsgrad))["other_optimizer"] == FP32 + 2 * 4


def test_tied_weights_count_once() -> None:
    # GIVEN a table of 20 x 8 that is also the weight of the last layer
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    # THEN its 640 bytes count once, in each of four parts
    assert found(model, optimizer) == {"params": 640, "grads": 640, "exp_avg": 640, "exp_avg_sq": 640, "other_optimizer": 4}
    # AND they are those of the first module that has it
    assert by_module(walk(model, optimizer), "params") == {"embed": 640}


def test_two_parameters_of_one_storage_count_once() -> None:
    # GIVEN two parameters over the same numbers THEN the storage counts once, as does the tensor
    first, second = nn.Linear(10, 5, bias=False), nn.Linear(10, 5, bias=False)
    second.weight = nn.Parameter(first.weight.data)
    result = walk(nn.ModuleList([first, second]))
    assert result.bytes_of("params") == 200 == result.view_bytes_of("params")


def test_the_toy_agrees_with_the_closed_form_and_with_memtracker() -> None:
    tracker = pytest.importorskip("torch.distributed._tools.mem_tracker", reason="MemTracker needs torch 2.5 or newer")
    # GIVEN a decoder of 4 blocks, trained for two steps with AdamW
    model = toy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plain(model, optimizer, None)
    assert TOY == 4_197_376
    # WHEN the second one is watched by torch's own tracker, and both look before the gradients go
    memory = tracker.MemTracker()
    memory.track_external(model, optimizer)
    with memory:
        tokens = torch.randint(0, 1000, (2, 64))
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        theirs = memory.get_tracker_snapshot("current")[torch.device("cpu")]
        ours = found(model, optimizer)
    # THEN parameters, gradients and moments are 4,197,376 bytes each, and the counts 4 bytes for each of 60 parameters
    assert ours == {"params": TOY, "grads": TOY, "exp_avg": TOY, "exp_avg_sq": TOY, "other_optimizer": 60 * 4}
    # AND the other says so too
    theirs = {kind.value if hasattr(kind, "value") else str(kind): size for kind, size in theirs.items()}
    state = ours["exp_avg"] + ours["exp_avg_sq"] + ours["other_optimizer"]
    assert (theirs["Parameter"], theirs["Gradient"], theirs["Optstate"]) == (TOY, TOY, state)


# --- Master weights and main gradients ---


def half_model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 5), nn.Linear(5, 5)).bfloat16()


def test_bf16_parameters_with_masters_of_ones_own() -> None:
    # GIVEN layers of 55 and 30 parameters in BF16, and an optimizer over FP32 copies of them
    model = half_model()
    masters = [p.detach().float() for p in model.parameters()]
    optimizer = torch.optim.Adam(masters)
    model(torch.ones(2, 10, dtype=torch.bfloat16)).float().sum().backward()
    for master, one in zip(masters, model.parameters(), strict=True):
        master.grad = one.grad.float()
    optimizer.step()
    # THEN 85 parameters take 2 + 2 bytes each in BF16, and 4 + 4 + 8 in FP32
    assert found(model, optimizer) == {
        "params": 170, "grads": 170, "main_grads": 340, "master_weights": 340, "exp_avg": 340, "exp_avg_sq": 340, "other_optimizer": 16,
    }  # fmt: skip
    # AND each is of the module of its parameter: 55 and 30
    result = walk(model, optimizer)
    for category in ("master_weights", "exp_avg", "main_grads"):
        assert by_module(result, category) == {"0": 220, "1": 120}


def test_an_fp32_parameter_is_its_own_master() -> None:
    # GIVEN a model with a norm in FP32 between layers in BF16, and an optimizer over masters of the layers and the norm itself
    model = nn.Sequential(nn.Linear(10, 5), nn.LayerNorm(5)).float()
    model[0].bfloat16()
    masters = [p.detach().float() for p in model[0].parameters()]
    optimizer = torch.optim.SGD([*masters, *model[1].parameters()], lr=0.1)
    # THEN the norm's 10 FP32 are parameters, and no masters
    assert found(model, optimizer) == {"params": BF16 + 40, "master_weights": FP32}


def test_an_optimizer_of_another_fp32_model_has_no_masters() -> None:
    # GIVEN a model in FP32 and an optimizer of some other one THEN what it updates are parameters
    model, other = nn.Linear(10, 5), nn.Linear(10, 5)
    assert found(model, torch.optim.SGD(other.parameters(), lr=0.1)) == {"params": 2 * FP32}


def test_without_a_model_the_groups_are_the_parameters() -> None:
    model = nn.Linear(10, 5)
    model(torch.ones(1, 10)).sum().backward()
    result = walk(None, torch.optim.SGD(model.parameters(), lr=0.1))
    assert (result.bytes_of("params"), result.bytes_of("grads"), result.bytes_of("master_weights")) == (FP32, FP32, 0)
    # AND without an optimizer, masters and state are unknown, not 0
    alone = walk(model)
    assert (alone.bytes_of("params"), alone.bytes_of("master_weights"), alone.bytes_of("exp_avg")) == (FP32, None, None)
    assert alone.master_weight_bytes is None and walk().bytes_of("params") is None


def test_gradients_in_one_shared_buffer_count_once() -> None:
    # GIVEN gradients that are views of one buffer of 64 numbers, 9 of which are padding
    model = nn.Linear(10, 5)
    buffer = torch.zeros(64)
    model.weight.grad, model.bias.grad = buffer[:50].view(5, 10), buffer[50:55]
    # THEN the buffer counts once and whole, and the tensors as they are
    result = walk(model)
    assert (result.bytes_of("grads"), result.view_bytes_of("grads")) == (256, FP32)


# --- Stand-ins: the same attributes, none of the code ---


class MegatronParts:
    """A model of Megatron's distributed data parallel, and its distributed optimizer, on rank 0 of `ranks`; lists as it has them."""

    def __init__(self, ranks: int, padding: int = 0) -> None:
        self.model = half_model()
        parameters = list(self.model.parameters())
        count = sum(p.numel() for p in parameters) + padding
        weights, gradients = torch.zeros(count, dtype=torch.bfloat16), torch.zeros(count)
        at = 0
        for p in parameters:
            p.data = weights[at : at + p.numel()].view(p.shape)
            p.main_grad = gradients[at : at + p.numel()].view(p.shape)
            at += p.numel()
        wrapped = nn.Module()
        wrapped.module = self.model
        wrapped.__class__ = type("DistributedDataParallel", (nn.Module,), {})
        wrapped.buffers = [SimpleNamespace(param_data=weights, grad_data=gradients)]
        self.wrapped, self.count = wrapped, count
        # the first parameters, up to this rank's share
        own = (count - padding) // ranks
        model_groups, half_groups, full_groups = [], [], []
        for p in parameters:
            take = max(0, min(own, p.numel()))
            own -= take
            if take:
                half = p.detach().view(-1)[:take]
                full = half.clone().float()
                full.grad = p.main_grad.view(-1)[:take]
                model_groups.append(p)
                half_groups.append(half)
                full_groups.append(full)
        self.shard = sum(t.numel() for t in full_groups)
        inner = torch.optim.Adam([{"params": full_groups}])
        inner.step()
        self.optimizer = SimpleNamespace(
            optimizer=inner, buffers=wrapped.buffers, per_model_buffers={0: wrapped.buffers}, model_float16_groups=[model_groups],
            model_fp32_groups=[[]], shard_float16_groups=[half_groups], shard_fp32_groups=[[]],
            shard_fp32_from_float16_groups=[full_groups], param_groups=inner.param_groups, state=inner.state,
        )  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 5])
def test_megatrons_distributed_optimizer(ranks: int) -> None:
    # GIVEN 85 parameters over d ranks
    parts = MegatronParts(ranks)
    assert parts.count == 85 and parts.shard == 85 // ranks
    sizes = found(parts.wrapped, parts.optimizer)
    steps = sizes.pop("other_optimizer")
    # THEN they take 6 + 12 / d bytes each: 2 + 4 whole, 4 + 4 + 4 divided; the gradients of the shards lie in the buffer
    share = 85 * 4 // ranks
    assert sizes == {"params": 170, "main_grads": 340, "master_weights": share, "exp_avg": share, "exp_avg_sq": share}
    assert sum(sizes.values()) == 85 * (6 + 12 / ranks) and steps % 4 == 0


def test_megatrons_buffers_count_with_their_padding() -> None:
    # GIVEN buffers with room for 43 numbers more THEN these are of no module
    parts = MegatronParts(5, padding=43)
    result = walk(parts.wrapped, parts.optimizer)
    assert by_module(result, "params") == {"0": 110, "1": 60, "": 86}
    assert by_module(result, "main_grads") == {"0": 220, "1": 120, "": 172}
    assert by_module(result, "master_weights") == {"0": 68}
    assert (result.master_weight_bytes, result.main_grad_bytes) == (68, 512)


def test_megatrons_fp32_parameters_are_their_own_masters() -> None:
    # GIVEN a distributed optimizer over FP32 parameters: its shards are views of them
    model = nn.Linear(10, 5)
    shards = [p.detach().view(-1)[: p.numel() // 2] for p in model.parameters()]
    inner = torch.optim.Adam(shards)
    optimizer = SimpleNamespace(
        optimizer=inner, shard_fp32_groups=[shards], shard_fp32_from_float16_groups=[[]], param_groups=inner.param_groups
    )
    assert found(model, optimizer) == {"params": FP32}
    assert walk(model, optimizer).master_weight_bytes == 0


def float16_optimizer(model: nn.Module) -> SimpleNamespace:
    """As `Float16OptimizerWithFloat16Params`: whole masters, their gradients made from `main_grad`."""
    halves = list(model.parameters())
    masters = [p.detach().clone().float() for p in halves]
    for master in masters:
        master.grad = torch.zeros_like(master)
    inner = torch.optim.Adam(masters)
    inner.step()
    return SimpleNamespace(
        optimizer=inner,
        float16_groups=[halves],
        fp32_from_float16_groups=[masters],
        fp32_from_fp32_groups=[[]],
        param_groups=inner.param_groups,
    )


def test_megatrons_float16_optimizer_and_chains_of_it() -> None:
    # GIVEN two models with an optimizer each, chained THEN both are found, also the state deep inside
    models = [nn.Linear(10, 5).bfloat16(), nn.Linear(10, 5).bfloat16()]
    chained = SimpleNamespace(chained_optimizers=[float16_optimizer(one) for one in models])
    expected = {"params": BF16, "main_grads": FP32, "master_weights": FP32, "exp_avg": FP32, "exp_avg_sq": FP32, "other_optimizer": 8}
    assert found(models, chained) == {name: 2 * size for name, size in expected.items()}
    assert by_module(walk(models, chained), "master_weights") == {"0": FP32, "1": FP32}
    # AND a wrapper around it, a list of it, and an engine that has it, all say the same
    assert found(models, SimpleNamespace(optimizer=[chained])) == found(models, chained) == found(models, {"one": chained})
    # AND without the model its parameters are known from the optimizer
    assert found(None, chained) == found(models, chained)


def test_megatrons_optimizer_with_a_part_on_the_host() -> None:
    # GIVEN an optimizer of two others, of which one updates FP32 copies of the weight that a table of its outer one names
    model = nn.Linear(10, 5).bfloat16()
    copy = model.weight.detach().float()
    inner = [torch.optim.Adam([copy]), torch.optim.SGD([model.bias], lr=0.1)]
    copy.grad = torch.zeros(5, 10)
    inner[0].step()
    hybrid = SimpleNamespace(sub_optimizers=inner, param_to_fp32_param={model.weight: copy}, param_groups=[{"params": list(model.parameters())}])
    # THEN the copy is a master weight, with its gradient and moments
    assert found(model, SimpleNamespace(optimizer=hybrid, param_groups=[])) == {
        "params": BF16, "main_grads": 200, "master_weights": 200, "exp_avg": 200, "exp_avg_sq": 200, "other_optimizer": 4,
    }  # fmt: skip


def test_main_param_of_parameters() -> None:
    # GIVEN a parameter that knows its FP32 copy, which no optimizer's group holds yet
    model = nn.Linear(10, 5).bfloat16()
    for p in model.parameters():
        p.main_param = p.detach().float()
    assert found(model) == {"params": BF16, "master_weights": FP32}


def test_masters_within_the_state() -> None:
    # GIVEN a fused optimizer that keeps its masters in the state, and moments in 8 bits with a scale
    model = nn.Linear(10, 5).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for p in model.parameters():
        optimizer.state[p] = {
            "master_param": p.detach().float(), "exp_avg": torch.zeros(p.shape, dtype=torch.uint8), "scales": [torch.zeros(2), {"s": torch.zeros(1)}],
        }  # fmt: skip
    result = walk(model, optimizer)
    assert result.master_weight_bytes == FP32 and result.bytes_of("exp_avg") == 55 and result.bytes_of("other_optimizer") == 2 * 12
    assert result.bytes_of("exp_avg", dtypes=("uint8",)) == 55


def test_masters_of_apex_amp_are_found() -> None:
    # GIVEN an optimizer that amp has changed: masters in a stash and in the groups
    model = nn.Linear(10, 5).half()
    masters = [p.detach().float() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    optimizer._amp_stash = SimpleNamespace(all_fp16_params=list(model.parameters()), all_fp32_from_fp16_params=masters)
    assert found(model, optimizer) == {"params": BF16, "master_weights": FP32}
    # AND Apex's own FP16_Optimizer
    outer = SimpleNamespace(optimizer=optimizer, fp16_groups=[list(model.parameters())], fp32_from_fp16_groups=[masters])
    assert found(model, outer) == {"params": BF16, "master_weights": FP32}


def test_deepspeeds_stages_two_and_three() -> None:
    # GIVEN 55 parameters in BF16 flattened to 56, over two ranks: 28 FP32 masters, gradients of them, half of the gradients in BF16
    model = nn.Linear(10, 5).bfloat16()
    flat = torch.zeros(56, dtype=torch.bfloat16)
    model.weight.data, model.bias.data = flat[:50].view(5, 10), flat[50:55]
    master = torch.zeros(28)
    master.grad = torch.zeros(28)
    inner = torch.optim.Adam([master])
    inner.step()
    optimizer = SimpleNamespace(
        optimizer=inner, bit16_groups_flat=[flat], single_partition_of_fp32_groups=[master], param_groups=inner.param_groups,
        averaged_gradients={0: [torch.zeros(28, dtype=torch.bfloat16)]},
    )  # fmt: skip
    expected = {
        "params": 112,
        "grads": 56,
        "main_grads": 112,
        "master_weights": 112,
        "exp_avg": 112,
        "exp_avg_sq": 112,
        "other_optimizer": 4,
    }
    assert found(model, optimizer) == expected
    # AND an engine that has model and optimizer needs no second argument
    engine = nn.Module()
    engine.module, engine.optimizer = model, optimizer
    assert found(engine) == expected
    # AND in stage 3 the parameters are empty between uses, and each has its part
    for p, part in zip(model.parameters(), (25, 3), strict=True):
        p.ds_tensor = torch.zeros(part, dtype=torch.bfloat16)
        p.data = torch.empty(0, dtype=torch.bfloat16)
    assert found(model) == {"params": 2 * 28}


# --- torch's own: autocast, sharded optimizers and models ---


def test_autocast_keeps_fp32_parameters_which_are_their_own_masters() -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this torch has no GradScaler for a CPU")
    # GIVEN FP32 parameters that compute in BF16, with scaled losses
    model = nn.Linear(10, 5)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.ones(2, 10)).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    # THEN there are 4 + 4 + 8 bytes of each, and no master weights beside the parameters
    sizes = found(model, optimizer)
    assert sizes == {"params": FP32, "grads": FP32, "exp_avg": FP32, "exp_avg_sq": FP32, "other_optimizer": 2 * 4}
    assert walk(model, optimizer).master_weight_bytes == 0 == walk(model, optimizer).main_grad_bytes


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("mixed", [False, True])
def test_fsdp2_holds_its_shards(one_rank: None, mixed: bool) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    # GIVEN layers of 55 and 30 parameters, sharded over one rank, which compute in BF16 in the second case
    model = nn.Sequential(nn.Linear(10, 5), nn.Linear(5, 5))
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16) if mixed else fsdp.MixedPrecisionPolicy()
    for layer in model:
        fsdp.fully_shard(layer, mp_policy=policy)
    fsdp.fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    # THEN after a step each is held in FP32 once: shards are parameters, and their own masters
    sizes = found(*trained(model, optimizer))
    assert sizes == {"params": 340, "grads": 340, "exp_avg": 340, "exp_avg_sq": 340, "other_optimizer": 4 * 4}
    assert by_module(walk(model, optimizer), "params") == {"0": FP32, "1": 120}


def test_zero_redundancy_optimizer(one_rank: None) -> None:
    optim = pytest.importorskip("torch.distributed.optim")
    # GIVEN torch's sharded optimizer, which keeps the real one inside THEN its state is found there
    model = nn.Linear(10, 5)
    optimizer = optim.ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam)
    sizes = found(*trained(model, optimizer))
    assert (sizes["params"], sizes["grads"], sizes["exp_avg"], sizes["exp_avg_sq"]) == (FP32, FP32, FP32, FP32)


# --- What is no memory, and what is odd ---


def test_meta_and_fake_tensors_are_no_memory() -> None:
    with torch.device("meta"):
        meta = nn.Linear(10, 5)
    with FakeTensorMode():
        fake = nn.Linear(10, 5)
    result = walk([meta, fake, nn.Linear(10, 5)])
    assert result.bytes_of("params") == FP32
    assert result.left_out == {"tensors without data (meta)": 2, "tensors without data (fake)": 2}


def test_lazy_sparse_and_freed_tensors() -> None:
    # GIVEN a layer without sizes yet, a sparse gradient of 1 row of 8 (values 32 bytes, index 8), and a storage that was freed
    lazy, table, freed = nn.LazyLinear(3), nn.Embedding(20, 8, sparse=True), nn.Linear(10, 5, bias=False)
    table(torch.tensor([4])).sum().backward()
    freed.weight.data.untyped_storage().resize_(0)
    result = walk([lazy, table, freed])
    assert (result.bytes_of("params"), result.bytes_of("grads")) == (640, 40)
    assert sum(result.left_out.values()) == 2  # weight and bias of the lazy one


def test_views_with_holes_and_expanded_ones() -> None:
    # GIVEN a column of a matrix of 10 x 10, and one number shown 1000 times
    model = nn.Module()
    model.register_buffer("column", torch.zeros(10, 10)[:, 0])
    model.register_buffer("one", torch.zeros(1).expand(1000))
    result = walk(model)
    # THEN the storages count, which the views keep alive, and of the tensors no more than there is
    assert (result.bytes_of("buffers"), result.view_bytes_of("buffers")) == (400 + 4, 40 + 4)


def test_nothing_is_kept_alive() -> None:
    # GIVEN a model and an optimizer that were walked over, by a result that is kept
    model = half_model()
    optimizer = torch.optim.AdamW(model.parameters())
    trained(model, optimizer)
    result = walk(model, optimizer)
    watched = [weakref.ref(t) for p in model.parameters() for t in (p, optimizer.state[p]["exp_avg"])] + [weakref.ref(model)]
    # WHEN nobody else has them THEN they are gone at once, without a garbage collection for the tensors
    gc.collect()
    gc.disable()
    try:
        model.zero_grad(set_to_none=True)
        optimizer.state.clear()
        assert not any(one() is not None for one in watched[1:-1:2])
    finally:
        gc.enable()
    del model, optimizer
    gc.collect()
    assert not any(one() is not None for one in watched) and result.bytes_of("params") == 170


class Hostile:
    """Everything that it is asked for fails."""

    def __getattr__(self, name: str):
        raise RuntimeError(name)


def test_odd_optimizers_give_what_there_is() -> None:
    model = nn.Linear(10, 5)
    round_trip = SimpleNamespace(param_groups=[])
    round_trip.optimizer = round_trip
    for odd in (
        Hostile(),
        MagicMock(),
        round_trip,
        5,
        "optimizer",
        [Hostile(), None],
        SimpleNamespace(param_groups=[3, {"params": "x"}], state={1: 2}),
    ):
        assert walk(model, odd).bytes_of("params") == FP32
    assert walk("no model", "no optimizer").parts == ()
    assert walk([None, 3, Hostile()], None).bytes_of("params") is None


# --- The sums against a slow count ---


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 16), st.sampled_from(CATEGORIES), st.integers(-1, 2)), max_size=30
    )
)
def test_each_byte_counts_once(views: list[tuple[int, int, int, str, int]]) -> None:
    # GIVEN views of three storages of 16 numbers of a byte, in any categories and modules
    storages = [torch.zeros(16, dtype=torch.uint8) for _ in range(3)]
    counted, owner = Storages(), {}
    for which, start, length, category, module in views:
        counted.add(storages[which][start : start + length], category, module)
        for at in range(start, min(start + length, 16)):
            owner.setdefault((which, at), (category, module))
    # THEN the tensors have the bytes that a count byte by byte gives the first to come
    sums = counted.sums()
    for category in CATEGORIES:
        for module in range(-1, 3):
            slow = sum(one == (category, module) for one in owner.values())
            assert sum(s.view_bytes for row, s in sums.items() if (row.category, row.module) == (category, module)) == slow
    # AND all bytes are those of the storages that were met
    assert sum(s.bytes for s in sums.values()) == 16 * len({which for which, _ in owner})


def test_walks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tb_sol_plugin.capture.memory import model_state

    # GIVEN more rows than are kept THEN those of one category and type are summed up, and the sums stay
    model = nn.Sequential(nn.Linear(10, 5), nn.Linear(5, 5))
    whole = walk(model).bytes_of("params")
    monkeypatch.setattr(model_state, "MOST_ROWS", 1)
    folded = walk(model)
    assert by_module(folded, "params") == {"": whole} and whole == 4 * (55 + 30)
    # AND of more tensors than are looked at it is said how many
    monkeypatch.setattr(model_state, "MOST_TENSORS", 3)
    short = walk(model)
    assert short.bytes_of("params") == 4 * (55 + 25) and short.left_out == {"too many tensors": 1}
    # AND optimizers in one another, without end, are followed for a while
    endless = SimpleNamespace(param_groups=[])
    for _ in range(5000):
        endless = SimpleNamespace(param_groups=[], optimizer=endless)
    assert walk(model, endless).left_out == {"too many tensors": 1}


def test_the_walk_runs_no_operator_and_changes_nothing() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Counts.calls += 1
            return function(*args, **(kwargs or {}))

    model = nn.Linear(10, 5)
    optimizer = torch.optim.Adam(model.parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # GIVEN a walk under a mode that sees every operator THEN it sees none, and no state has come into being by looking
    with Counts():
        walk(model, optimizer)
    assert Counts.calls == 0 and not optimizer.state
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
