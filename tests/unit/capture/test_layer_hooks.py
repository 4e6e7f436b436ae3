"""Labels of module calls: which, how deep, how long; and that nothing of them stays on a model."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tests.support.toy import fused_qkv, some_tokens

torch = pytest.importorskip("torch", reason="hooks modules of PyTorch")
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tb_sol_plugin.capture.layer_hooks as module_of_hooks  # noqa: E402
from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks, captured_ops  # noqa: E402
from tb_sol_plugin.capture.operation_registry import DataType, OpRecord, OpType  # noqa: E402
from tests.support.stopped_clock import StoppedClock, stop_clock  # noqa: E402

nn = torch.nn
DICTS = (
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip


def new(**options: Any) -> LayerSOLHooks:
    return LayerSOLHooks(Labels(), Clock(), **options)


@pytest.fixture
def hooks() -> Iterator[LayerSOLHooks]:
    made = new()
    yield made
    made.remove()


def paths(hooks: LayerSOLHooks) -> list[str]:
    """Finished calls as `outer/inner`."""
    return ["/".join(hooks.labels.path(call[0])) for call in hooks.calls]


def state(model: Any) -> list[tuple[Any, ...]]:
    """Which hook dictionaries a model has, and what is in them in which order."""
    return [(name, id(held), list(held.items())) for m in model.modules() for name in DICTS for held in (getattr(m, name),)]


class Note(nn.Module):
    """Notes the label at the top while it runs."""

    def __init__(self, hooks: LayerSOLHooks) -> None:
        super().__init__()
        self.hooks, self.seen = hooks, []

    def forward(self, x: Any) -> Any:
        self.seen.append(self.hooks.labels.path(self.hooks.stack.top))
        return x


# --- Labels ---


def test_a_call_is_labeled_by_its_place_in_the_model(hooks: LayerSOLHooks) -> None:
    # GIVEN a module called within a sequence
    note = Note(hooks)
    model = nn.Sequential(nn.ReLU(), nn.Sequential(note))
    assert hooks.attach(model) == 4
    # WHEN it runs
    model(torch.ones(1))
    # THEN inside, all modules around it are open, and calls are noted as they end
    assert note.seen == [("Sequential", "1", "1.0")]
    assert paths(hooks) == ["Sequential/0", "Sequential/1/1.0", "Sequential/1", "Sequential"]
    assert hooks.stack.top == NONE
    assert [hooks.labels.known[call[0]].class_name for call in hooks.calls] == ["ReLU", "Note", "Sequential", "Sequential"]


def test_a_shared_module_counts_per_use_under_its_first_name(hooks: LayerSOLHooks) -> None:
    shared = nn.ReLU()
    model = nn.Sequential(shared, nn.Sequential(shared), shared)
    hooks.attach(model)
    model(torch.ones(1))
    assert paths(hooks) == ["Sequential/0", "Sequential/1/0", "Sequential/1", "Sequential/0", "Sequential"]


def test_a_module_that_calls_itself_has_a_label_per_depth(hooks: LayerSOLHooks) -> None:
    class Countdown(nn.Module):
        def forward(self, n: int) -> int:
            return self(n - 1) if n else 0

    model = Countdown()
    hooks.attach(model)
    assert model(2) == 0
    assert paths(hooks) == ["Countdown/Countdown/Countdown", "Countdown/Countdown", "Countdown"]


def test_labels_are_those_of_the_last_sampled_step(hooks: LayerSOLHooks) -> None:
    # GIVEN two sampled steps WHEN the model is the same THEN no new labels are made (iteration 2 does not grow)
    model = fused_qkv()
    for _ in range(2):
        hooks.attach(model)
        model(some_tokens())
        hooks.end_step()
        hooks.remove()
        known, calls = len(hooks.labels.known), len(hooks.calls)
        assert (known, calls) == (32, 32)  # 17 Linear, 9 LayerNorm, 1 Embedding, 4 blocks and the whole
        hooks.clear()
        assert not hooks.calls


def test_supported_layers_are_known_by_label(hooks: LayerSOLHooks) -> None:
    model = fused_qkv()
    hooks.attach(model)
    model(some_tokens())
    types = Counter(hooks.supported[call[0]][0] for call in hooks.calls if call[0] in hooks.supported)
    assert types == {"Linear": 17, "LayerNorm": 9, "Embedding": 1}


# --- Twice, off, as found ---


def test_a_second_attach_adds_nothing(hooks: LayerSOLHooks) -> None:
    model = nn.Sequential(nn.ReLU())
    assert hooks.attach(model) == 2
    before = state(model)
    assert hooks.attach(model) == 0
    assert state(model) == before
    # but finds modules that came since
    model.append(nn.ReLU())
    assert hooks.attach(model) == 1
    model(torch.ones(1))
    assert paths(hooks) == ["Sequential/0", "Sequential/1", "Sequential"]


def test_remove_leaves_every_module_as_it_was_found(hooks: LayerSOLHooks) -> None:
    # GIVEN a model with hooks of its owner, of all sorts
    model = fused_qkv()
    order: list[str] = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda m, a: order.append("own pre"))
        module.register_forward_pre_hook(lambda m, a, k: None, with_kwargs=True)
        module.register_forward_hook(lambda m, a, r: order.append("own post"), always_call=True)
        module.register_forward_hook(lambda m, a, k, r: None, with_kwargs=True)
    before = state(model)
    # WHEN ours come and go, with a run in between
    hooks.attach(model)
    assert state(model) != before
    model(some_tokens())
    hooks.remove()
    # THEN the dictionaries are the same objects with the same content in the same order
    assert state(model) == before
    hooks.remove()
    assert state(model) == before and not hooks.attached


def test_hooks_that_others_register_meanwhile_stay(hooks: LayerSOLHooks) -> None:
    model = nn.ReLU()
    hooks.attach(model)
    theirs = [model.register_forward_pre_hook(lambda m, a: None, prepend=True), model.register_forward_hook(lambda m, a, r: None)]
    hooks.remove()
    assert list(model._forward_pre_hooks) == [theirs[0].id] and list(model._forward_hooks) == [theirs[1].id]


def test_hooks_of_others_run_inside_the_label(hooks: LayerSOLHooks) -> None:
    # GIVEN a pre-hook and a hook of the model's owner
    model, seen = nn.ReLU(), []
    model.register_forward_pre_hook(lambda m, a: seen.append(hooks.stack.top))
    model.register_forward_hook(lambda m, a, r: seen.append(hooks.stack.top))
    hooks.attach(model)
    model(torch.ones(1))
    # THEN ours is first to enter and last to leave
    assert seen == [0, 0]


def test_hooks_change_neither_output_nor_arguments(hooks: LayerSOLHooks) -> None:
    class Odd(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return {"args": args, **kwargs}

    model = Odd()
    hooks.attach(model)
    assert model(None, b=(1,)) == {"args": (None,), "b": (1,)}
    for odd in (None, (), [], "text", {}):
        assert model(odd)["args"] == (odd,)
    toy = fused_qkv()
    with torch.no_grad():
        plain = toy(some_tokens())
        hooks.attach(toy)
        assert torch.equal(toy(some_tokens()), plain)


# --- Exceptions, checkpoints, odd control flow ---


def test_an_exception_in_forward_empties_the_stack(hooks: LayerSOLHooks) -> None:
    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    model = nn.Sequential(nn.ReLU(), nn.Sequential(Fails()))
    hooks.attach(model)
    with pytest.raises(ValueError, match="no"), warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.ones(1))
    # THEN the calls are closed without a word, also those that failed
    assert hooks.stack.open == [] and not hooks.lost
    assert paths(hooks) == ["Sequential/0", "Sequential/1/1.0", "Sequential/1", "Sequential"]


class Interrupt(nn.Module):
    def forward(self, x: Any) -> Any:
        raise KeyboardInterrupt


def test_an_interrupt_leaves_labels_that_the_next_end_takes_off(hooks: LayerSOLHooks) -> None:
    # GIVEN a module around one that is interrupted (torch calls no hooks then), which goes on all the same
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(Interrupt())

        def forward(self, x: Any) -> Any:
            try:
                return self.inner(x)
            except KeyboardInterrupt:
                return x

    model = Stubborn()
    hooks.attach(model)
    model(torch.ones(1))
    # THEN its own end repairs the stack, and what has no end is counted
    assert hooks.stack.open == []
    assert paths(hooks) == ["Stubborn"]
    assert hooks.lost == {"module call without an end": 2}


def test_what_is_open_at_the_end_of_a_step_is_counted_and_dropped(hooks: LayerSOLHooks) -> None:
    model = nn.Sequential(Interrupt())
    hooks.attach(model)
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(1))
    assert len(hooks.stack.open) == 2
    hooks.end_step()
    assert hooks.stack.open == []
    assert hooks.lost == {"module call still open at the end of the step": 2}
    # AND the next step begins at the root again
    hooks.clear()
    assert not hooks.lost
    model[0] = nn.ReLU()
    hooks.attach(model)
    model(torch.ones(1))
    assert paths(hooks) == ["Sequential/0", "Sequential"]


def test_a_step_that_ends_inside_a_forward(hooks: LayerSOLHooks) -> None:
    # GIVEN a module that ends the step, and begins the next one, while it runs
    class Ends(nn.Module):
        def forward(self, x: Any) -> Any:
            hooks.end_step()
            return x

    model = nn.Sequential(Ends())
    hooks.attach(model)
    model(torch.ones(1))
    assert hooks.stack.open == [] and hooks.calls == []
    assert hooks.lost == {
        "module call still open at the end of the step": 2, "module call ended outside the step that it began in": 2
    }  # fmt: skip


def test_a_hook_that_is_put_on_during_the_call(hooks: LayerSOLHooks) -> None:
    class Attaches(nn.Module):
        def forward(self, x: Any) -> Any:
            hooks.attach(self)
            return x

    Attaches()(torch.ones(1))
    assert hooks.stack.open == [] and hooks.calls == []
    assert hooks.lost == {"module call ended outside the step that it began in": 1} or not hooks.lost


def test_a_pre_hook_of_somebody_that_fails_closes_the_call(hooks: LayerSOLHooks) -> None:
    model = nn.Sequential(nn.ReLU())

    def fails(module: Any, args: Any) -> None:
        raise RuntimeError("theirs")

    model[0].register_forward_pre_hook(fails)
    hooks.attach(model)
    with pytest.raises(RuntimeError, match="theirs"):
        model(torch.ones(1))
    assert hooks.stack.open == [] and not hooks.lost


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("early_stop", [False, True])
def test_a_checkpointed_forward_runs_twice_and_leaves_nothing(hooks: LayerSOLHooks, reentrant: bool, early_stop: bool) -> None:
    # GIVEN a checkpointed block of which the last module saves nothing, so that an early stop leaves its recomputation in the middle
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Identity())
    hooks.attach(block)
    x = torch.ones(2, 4, requires_grad=True)
    stop = torch.utils.checkpoint.set_checkpoint_early_stop(early_stop)
    with stop:
        y = checkpoint(block, x, use_reentrant=reentrant)
    first = len(hooks.calls)
    assert first == 5 and hooks.stack.open == []
    y.sum().backward()
    # THEN the second run has ended its calls, too
    assert hooks.stack.open == [] and not hooks.lost
    again = Counter(paths(hooks)[first:])
    assert again["Sequential"] == 1 and again["Sequential/0"] == 1
    assert again["Sequential/3"] == (0 if early_stop and not reentrant else 1)


def test_an_error_in_a_hook_does_not_reach_the_model(hooks: LayerSOLHooks) -> None:
    # GIVEN labels that cannot be made, and a stack that somebody else has emptied
    class Empties(nn.Module):
        def forward(self, x: Any) -> Any:
            hooks.stack.open.clear()
            return x

    def broken(*_: Any) -> int:
        raise MemoryError("no labels left")

    model = nn.Sequential(nn.ReLU(), Empties())
    hooks.attach(model)
    assert model(torch.ones(1)).item() == 1
    assert hooks.lost == {"a hook failed: IndexError": 2}
    hooks.clear()
    hooks.labels.id_of = broken  # type: ignore[method-assign]
    hooks.attach(later := nn.Sequential(nn.ReLU()))
    assert later(torch.ones(1)).item() == 1
    assert hooks.lost == {"a hook failed: MemoryError": 2, "module call ended outside the step that it began in": 2}


def test_generators_that_end_out_of_order(hooks: LayerSOLHooks) -> None:
    # GIVEN a module whose forward only makes a generator: the call ends before its body runs
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return (self.inner(x) for _ in range(2))

    model = Lazy()
    hooks.attach(model)
    list(model(torch.ones(1)))
    # THEN its modules are called from outside, and the stack is right
    assert paths(hooks) == ["Lazy", "inner", "inner"] and hooks.stack.open == []


# --- Threads ---


def test_threads_have_their_own_stacks(hooks: LayerSOLHooks) -> None:
    # GIVEN two models that meet in the middle of their forward on two threads
    meet = threading.Barrier(2, timeout=120)
    seen: dict[str, tuple[str, ...]] = {}

    class Meets(nn.Module):
        def forward(self, x: Any) -> Any:
            meet.wait()
            seen[threading.current_thread().name] = hooks.labels.path(hooks.stack.top)
            meet.wait()
            return x

    models = {"a": nn.Sequential(Meets()), "b": nn.Sequential(nn.Sequential(Meets()))}
    hooks.attach(models)
    threads = [threading.Thread(target=model, args=(torch.ones(1),), name=name) for name, model in models.items()]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    # THEN neither sees the other
    assert seen == {"a": ("a", "a.0"), "b": ("b", "b.0", "b.0.0")}
    assert sorted(paths(hooks)) == ["a", "a/a.0", "b", "b/b.0", "b/b.0/b.0.0"]
    assert not hooks.lost


def test_the_end_of_a_step_empties_the_stacks_of_all_threads(hooks: LayerSOLHooks) -> None:
    # GIVEN a thread whose forward was interrupted
    model = nn.Sequential(Interrupt())
    hooks.attach(model)
    depths: list[int] = []
    inside = threading.Event()
    go = threading.Event()

    def run() -> None:
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(1))
        depths.append(len(hooks.stack.open))
        inside.set()
        go.wait(60)
        depths.append(len(hooks.stack.open))

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(60)
    # WHEN the step ends on another thread THEN that thread starts anew, too
    hooks.end_step()
    go.set()
    thread.join()
    assert depths == [2, 0]


# --- Copies, pickles, scripts ---


def test_a_copy_of_a_hooked_model_loses_the_hooks_at_its_first_call(hooks: LayerSOLHooks) -> None:
    model = fused_qkv()
    hooks.attach(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        assert torch.equal(twin(some_tokens()), model(some_tokens()))
    # THEN the copy's calls are nobody's, the original's are counted once
    assert len(hooks.calls) == 32
    assert all(not getattr(m, name) for m in twin.modules() for name in DICTS if not isinstance(m, nn.ModuleList))
    hooks.remove()
    assert all(not getattr(m, name) for m in model.modules() for name in DICTS)


def test_a_pickle_of_a_hooked_model_holds_nothing_of_ours(hooks: LayerSOLHooks) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    hooks.attach(model)
    data = pickle.dumps(model)
    assert b"tb_sol_plugin" not in data
    loaded = pickle.loads(data)
    x = torch.ones(1, 3)
    assert torch.equal(loaded(x), model(x))
    assert len(hooks.calls) == 2
    # also as torch saves it, and a copy of a copy
    file = io.BytesIO()
    torch.save(copy.deepcopy(model), file)
    assert b"tb_sol_plugin" not in file.getvalue()
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), model(x))


def test_a_scripted_module_is_passed_over_and_counted(hooks: LayerSOLHooks) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    model = nn.Sequential(scripted, nn.ReLU())
    assert hooks.attach(model) == 2
    model(torch.ones(1, 2))
    assert paths(hooks) == ["Sequential/1", "Sequential"]
    assert hooks.lost == {"scripted module: takes no hooks": 2}


def test_a_hooked_model_can_be_scripted_and_traced(hooks: LayerSOLHooks) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    hooks.attach(model)
    x = torch.ones(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted, traced = torch.jit.script(model), torch.jit.trace(model, (x,))
    hooks.remove()
    assert torch.equal(scripted(x), model(x)) and torch.equal(traced(x), model(x))
    assert "tb_sol" not in str(scripted.code)


def test_torch_compiles_scripts_by_its_own_function_again_when_the_last_hooks_are_off() -> None:
    recursive = torch.jit._recursive
    original = recursive.create_script_module
    one, two = new(), new()
    one.attach(nn.ReLU())
    two.attach(nn.ReLU())
    ours = recursive.create_script_module
    assert ours is not original
    one.remove()
    assert recursive.create_script_module is ours
    two.remove()
    assert recursive.create_script_module is original
    two.remove()
    assert recursive.create_script_module is original


def test_a_module_that_refuses_hooks_is_counted(hooks: LayerSOLHooks) -> None:
    class Refuses(nn.Module):
        def register_forward_hook(self, *_: Any, **__: Any) -> Any:
            raise TypeError("no hooks here")

        def forward(self, x: Any) -> Any:
            return x

    model = nn.Sequential(Refuses())
    before = state(model[0])
    assert hooks.attach(model) == 1
    assert state(model[0]) == before
    model(torch.ones(1))
    assert paths(hooks) == ["Sequential"] and hooks.lost == {"module takes no hooks: TypeError": 1}


def test_lazy_modules_are_made_while_hooked(hooks: LayerSOLHooks) -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    hooks.attach(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model(torch.ones(2, 5)).shape == (2, 3)
    assert paths(hooks) == ["Sequential/0", "Sequential"]
    hooks.remove()
    plain = nn.Sequential(nn.Linear(5, 3))
    assert [len(getattr(model[0], name)) for name in DICTS] == [len(getattr(plain[0], name)) for name in DICTS]


def test_no_tensor_is_kept(hooks: LayerSOLHooks) -> None:
    import gc
    import weakref

    model = nn.Sequential(nn.ReLU())
    hooks.attach(model)
    x = torch.ones(3)
    y = model(x)
    alive = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [one() for one in alive] == [None, None]


# --- Wrappers of other sorts ---


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train_step(model: Any) -> list[Any]:
    model.zero_grad()
    model(some_tokens()).square().mean().backward()
    full = [getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in model.parameters()]
    return [one.clone() for one in full]


def test_data_parallel_models_are_labeled_as_if_they_were_not(hooks: LayerSOLHooks, group: None) -> None:
    model = torch.nn.parallel.DistributedDataParallel(fused_qkv())
    plain, before = train_step(model), state(model)
    hooks.attach(model)
    watched = train_step(model)
    hooks.remove()
    assert state(model) == before
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert {*paths(hooks)} >= {"Toy/embed", "Toy/blocks.3/blocks.3.down", "Toy"} and len(hooks.calls) == 32


def test_sharded_models_keep_their_own_hooks_inside_ours(hooks: LayerSOLHooks, group: None) -> None:
    fully_shard = getattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard", None)
    if fully_shard is None:
        pytest.skip("this torch has no fully_shard")
    # GIVEN a model whose blocks are sharded, by hooks that gather and free weights around each call
    model, mesh = fused_qkv(), torch.distributed.init_device_mesh("cpu", (1,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    plain, before = train_step(model), state(model)
    # WHEN a step is watched
    seen: list[str] = []
    gather = torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup.unshard

    def note(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append("/".join(hooks.labels.path(hooks.stack.top)))
        return gather(self, *args, **kwargs)

    hooks.attach(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup, "unshard", note)
        watched = train_step(model)
    hooks.remove()
    # THEN gathering is work of the module that needs the weights, and everything else is as before
    assert seen[:5] == ["Toy", *(f"Toy/blocks.{k}" for k in range(4))]
    assert state(model) == before
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert len(hooks.calls) == 32 and not hooks.lost and hooks.stack.open == []


# --- Times ---


class Takes(nn.Module):
    """A module whose call takes some ms of a clock that stands still otherwise."""

    def __init__(self, clock: StoppedClock, ms: int) -> None:
        super().__init__()
        self.clock, self.ms = clock, ms

    def forward(self, x: Any) -> Any:
        self.clock.pass_(self.ms * 1_000_000)
        return x


def test_calls_have_the_times_of_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN two modules of 20 and 10 ms WHEN both are called within a third
    clock = stop_clock(monkeypatch)
    hooks = new()
    model = nn.Sequential(Takes(clock, 20), Takes(clock, 10))
    hooks.attach(model)
    began = hooks.clock.now()
    model(None)
    # THEN they follow each other, within the whole
    ms = [(round((start - began) / 1e6), duration / 1e6) for _, start, duration, _ in hooks.calls]
    assert ms == [(0, 20), (20, 10), (0, 30)]
    hooks.remove()


def test_the_work_of_hooks_is_not_in_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN hooks whose labels take 5 ms to make
    clock = stop_clock(monkeypatch)
    hooks = new()
    make = hooks.labels.id_of

    def slow(*args: Any) -> int:
        clock.pass_(5_000_000)
        return make(*args)

    monkeypatch.setattr(hooks.labels, "id_of", slow)
    model = nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())
    hooks.attach(model)
    # WHEN four calls wait for theirs THEN the clock has lost 20 ms of its own, and no call shows them
    model(None)
    assert hooks.clock.own_ns == 20_000_000
    assert [call[2] for call in hooks.calls] == [0, 0, 0, 0]
    hooks.remove()


def test_calls_beyond_a_number_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for three calls of a module, and a layer that is called five times in its model
    monkeypatch.setattr(module_of_hooks, "CALLS_OF_ONE", 3)
    pool = Pool()
    hooks = new(events=pool)
    layer = nn.ReLU()
    model = nn.Sequential(*[layer] * 5)
    hooks.attach(model)
    for step in range(2):
        model(torch.ones(1))
        # THEN three stand for themselves, with events, the other two as one row with their number
        counts = [(hooks.labels.known[label].name, getattr(events, "count", 1)) for label, _, _, events in hooks.calls]
        assert counts == [("0", 1)] * 3 + [("0", 2), ("Sequential", 1)]
        assert pool.log.count("start 0") == 1 and len(pool.log) == 6 * (step + 1)
        # and the parts still sum up to less than the whole
        (*_, summed), (_, start, whole, _) = hooks.calls[:-1], hooks.calls[-1]
        assert start <= hooks.calls[0][1] < summed[1] and sum(call[2] for call in hooks.calls[:-1]) <= whole
        hooks.clear()
    hooks.remove()


def test_calls_of_all_modules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_of_hooks, "CALLS", 4)
    hooks = new()
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    hooks.attach(model)
    for _ in range(100):
        model(torch.ones(1))
    # 4 singly, then one row for each of three modules
    assert [getattr(call[3], "count", 1) for call in hooks.calls] == [1, 1, 1, 1, 99, 99, 98]
    assert sum(getattr(call[3], "count", 1) for call in hooks.calls) == 300
    hooks.remove()


class Pool:
    """Hands out pairs that note what happens to them."""

    def __init__(self, *, out: bool = False) -> None:
        self.log: list[str] = []
        self.out = out

    def pair(self) -> Any:
        if self.out:
            return None
        pool, number = self, sum(entry.startswith("start") for entry in self.log)

        class Pair:
            def start(self) -> None:
                pool.log.append(f"start {number}")

            def stop(self) -> None:
                pool.log.append(f"stop {number}")

        return Pair()


def test_modules_without_modules_get_pairs_of_events() -> None:
    pool = Pool()
    hooks = new(events=pool)
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    hooks.attach(model)
    model(torch.ones(1))
    # THEN one pair around each innermost module, none around those that hold others
    assert pool.log == ["start 0", "stop 0", "start 1", "stop 1"]
    assert [call[3] is not None for call in hooks.calls] == [True, True, False, False]
    # and none where the pool has none
    hooks.remove()
    hooks.clear()
    hooks.events = Pool(out=True)  # type: ignore[assignment]
    hooks.attach(model)
    model(torch.ones(1))
    assert [call[3] for call in hooks.calls] == [None] * 4
    hooks.remove()


# --- Records ---


def test_records_are_the_ledger_by_layer_phase_and_direction() -> None:
    def record(op: str, layer: str, flops: int | None, *, kind: OpType = OpType.MATMUL, count: int = 1, **more: Any) -> OpRecord:
        return OpRecord(
            op, kind, [(2, 3)], [(2, 5)], flops=flops, bytes=10 * count, count=count, layer_name="a", layer_type=layer, dtype=DataType.BF16, **more
        )  # fmt: skip

    # GIVEN a fused layer (normalization and product), its backward, and work outside of layers
    rows = [
        record("aten::native_layer_norm", "TELayerNormLinear", 0, kind=OpType.LAYERNORM, measured_time_us=1.0),
        record("aten::mm", "TELayerNormLinear", 60, count=2, measured_time_us=3.5),
        record("aten::mm", "TELayerNormLinear", 120, direction="bwd"),
        record("aten::odd", "TELayerNormLinear", None, direction="bwd"),
        OpRecord("aten::mul", OpType.ELEMENTWISE, layer_name="", layer_type=""),
    ]
    forward, backward = captured_ops(rows)
    # THEN it is one record per direction: a product with the sum of its parts
    assert (forward.op_type, forward.flops, forward.bytes, forward.count, forward.measured_time_us) == (OpType.MATMUL, 60, 30, 3, 4.5)
    assert (forward.layer_name, forward.dtype, forward.input_shapes, forward.source) == ("a", DataType.BF16, [(2, 3)], "dispatch")
    # and a sum with an unknown part, or an untimed one, is unknown
    assert (backward.direction, backward.flops, backward.bytes, backward.measured_time_us) == ("bwd", None, 20, None)


def test_two_layers_of_one_name_in_two_phases_are_two_records() -> None:
    rows = [
        OpRecord("aten::mm", OpType.MATMUL, flops=6, bytes=1, layer_name="a", layer_type="Linear", phase=phase) for phase in ("p", "q", "p")
    ]
    assert [(one.phase, one.flops, one.count) for one in captured_ops(rows)] == [("p", 12, 2), ("q", 6, 1)]
