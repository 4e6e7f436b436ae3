"""Device times by events: pooled, never waited for, late ones read later or counted."""

from __future__ import annotations

import pytest

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.phases import PENDING, PhaseStack
from tb_sol_plugin.capture.loop.timing import EventPool, Pair, event_pool


class Device:
    """A device whose work lags behind the host: events get their time when recorded, and are passed when `catch_up` is called."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.made: list[FakeEvent] = []
        self.broken = False

    def event(self) -> FakeEvent:
        made = FakeEvent(self)
        self.made.append(made)
        return made

    def catch_up(self) -> None:
        for event in self.made:
            event.passed = event.at is not None


class FakeEvent:
    def __init__(self, device: Device) -> None:
        self.device, self.at, self.passed = device, None, False

    def record(self) -> None:
        if self.device.broken:
            raise RuntimeError("CUDA error")
        self.at, self.passed = self.device.now_ms, False

    def query(self) -> bool:
        return self.passed

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.passed and end.passed, "waits for the device"
        return end.at - self.at

    def synchronize(self) -> None:
        raise AssertionError("waits for the device")


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def pool(device: Device) -> EventPool:
    return EventPool(device.event)


def timed(pool: EventPool, device: Device, ms: float) -> Pair:
    pair = pool.started()
    assert pair is not None
    device.now_ms += ms
    pair.stop()
    return pair


def test_a_pair_is_read_once_the_device_has_passed_it(pool: EventPool, device: Device) -> None:
    # GIVEN a pair 2.5 ms apart WHEN asked before and after the device has passed it
    pair = timed(pool, device, 2.5)
    assert not pool.done(pair)
    device.catch_up()
    # THEN its time is 2 500 000 ns
    assert pool.done(pair) and pool.resolve(pair) == 2_500_000
    assert pool.lost == {}


def test_events_are_used_again(pool: EventPool, device: Device) -> None:
    for _ in range(100):
        pair = timed(pool, device, 1)
        device.catch_up()
        assert pool.resolve(pair) == 1_000_000
    assert len(device.made) == 2


def test_what_the_device_has_not_passed_is_unknown_and_counted(pool: EventPool, device: Device) -> None:
    assert pool.resolve(timed(pool, device, 1)) is None
    assert pool.lost == {"event not completed": 1}
    # AND its events are not handed out while the device may still write to them
    timed(pool, device, 1)
    assert len(device.made) == 4


def test_a_pair_that_was_not_stopped_has_no_time(pool: EventPool) -> None:
    pair = pool.started()
    assert pool.done(pair) and pool.resolve(pair) is None and pool.done(None) and pool.resolve(None) is None


def test_a_failing_device_is_counted(pool: EventPool, device: Device) -> None:
    device.broken = True
    pair = pool.started()
    assert pair is not None
    pair.stop()
    assert pool.resolve(pair) is None and pool.lost == {"event not recorded: RuntimeError": 1}


def test_nothing_is_recorded_while_a_graph_is_captured(device: Device) -> None:
    # GIVEN a stream that is being captured WHEN a pair is asked for, or one from before is stopped THEN no event is recorded
    usable = [True]
    pool = EventPool(device.event, lambda: usable[0])
    pair = pool.started()
    usable[0] = False
    assert pool.started() is None
    assert pair is not None
    pair.stop()
    assert pool.resolve(pair) is None and len(device.made) == 2 and device.made[1].at is None


def test_there_are_no_events_on_a_cpu() -> None:
    assert event_pool("cpu") is None and event_pool("meta") is None and event_pool("") is None and event_pool("no such device") is None


def test_a_cuda_device_that_is_not_in_use_is_not_initialized() -> None:
    torch = pytest.importorskip("torch", reason="looks for devices")
    if torch.cuda.is_initialized():
        pytest.skip("this process uses CUDA already")
    pool = event_pool("cuda")
    assert pool is not None and pool.pair() is None and not torch.cuda.is_initialized()


# --- Phases with events ---


def phases_on(pool: EventPool) -> PhaseStack:
    clock = Clock()
    phases = PhaseStack(Labels(), clock)
    phases.events = pool
    phases.begin_step(clock.now())
    return phases


def test_a_phase_has_its_device_time_late(pool: EventPool, device: Device) -> None:
    # GIVEN two nested phases of 1 and 3 ms WHEN the step has ended and the device has not
    phases = phases_on(pool)
    with phases.phase("outer"):
        device.now_ms += 2
        with phases.phase("inner"):
            device.now_ms += 1
    pending = phases.end_step(0)
    assert not pending.done()
    # THEN the times are there once it has
    device.catch_up()
    assert pending.done()
    assert [row[3] for row in pending.rows()] == [3_000_000, 1_000_000]


def test_summed_phases_sum_their_device_times(pool: EventPool, device: Device) -> None:
    # GIVEN 1000 ranges of 2 ms each, the device a little behind
    phases = phases_on(pool)
    for k in range(1000):
        with phases.phase("token"):
            device.now_ms += 2
        if k % 10 == 9:
            device.catch_up()
    device.catch_up()
    (row,) = phases.end_step(0).rows()
    # THEN one row has 2000 ms, and events were used again
    assert row[3:] == (2_000_000_000, 1000)
    assert len(device.made) <= 2 * (256 + 2 * PENDING)


def test_a_sum_with_an_unknown_part_is_unknown(pool: EventPool, device: Device) -> None:
    # GIVEN many ranges that the device never passes WHEN the step ends THEN their count is known and their device time is not
    phases = phases_on(pool)
    for _ in range(3000):
        with phases.phase("token"):
            pass
    (row,) = phases.end_step(0).rows()
    assert row[3:] == (None, 3000)


def test_a_phase_over_two_steps_has_a_time_in_each(pool: EventPool, device: Device) -> None:
    phases = phases_on(pool)
    phases.push("epoch")
    device.now_ms += 4
    first = phases.end_step(0)
    phases.begin_step(0)
    device.now_ms += 5
    phases.pop()
    second = phases.end_step(0)
    device.catch_up()
    assert [row[3] for row in first.rows()] == [4_000_000] and [row[3] for row in second.rows()] == [5_000_000]
