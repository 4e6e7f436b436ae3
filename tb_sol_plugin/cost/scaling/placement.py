"""Jobs on nodes: how a node's devices can be divided, and which job sits where, with as few moves as can be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

Seats: TypeAlias = dict[int, int]
"""Devices that a job holds, by node."""


class Demand(NamedTuple):
    """What a job is to hold: `part` devices on each of `nodes` nodes (0: nothing), and where it sits now, if it may stay there."""

    nodes: int
    part: int
    now: Seats


class Pattern(NamedTuple):
    """A node of so many devices: the part of a job on several nodes (0: none), and the parts of jobs that run on it alone."""

    devices: int
    slice: int
    parts: tuple[int, ...]


@lru_cache(64)
def sizes(devices: tuple[int, ...]) -> tuple[int, ...]:
    """Parts that a node may be divided into: all up to 8 devices, beyond that 1, 2, 3, 4, 6, 8, 12, 16, … and whole nodes."""
    most = max(devices)
    if most <= 8:
        return tuple(range(1, most + 1))
    steps = {1, 2, 3, *(2**k for k in range(2, most.bit_length())), *(3 * 2**k for k in range(1, most.bit_length()))}
    whole = {part for d in devices for part in (d, d // 2)}
    return tuple(sorted(s for s in steps | whole if 0 < s <= most))


@lru_cache(64)
def patterns(devices: tuple[int, ...]) -> tuple[Pattern, ...]:
    """All ways to divide a node of each size so that no part could be added."""
    allowed = sizes(devices)
    out = []
    for d in sorted(set(devices)):
        for slice_ in (0, *(s for s in allowed if s <= d)):
            out += [Pattern(d, slice_, parts) for parts in _fills(d - slice_, allowed)]
    return tuple(out)


def _fills(room: int, allowed: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Multisets of allowed sizes that add up to the room; 1 is always allowed."""
    if room == 0:
        return [()]
    out: list[tuple[int, ...]] = []
    for largest in allowed:
        if largest <= room:
            smaller = tuple(s for s in allowed if s <= largest)
            out += [(largest, *rest) for rest in _fills(room - largest, smaller)]
    return out


def place(
    demands: Sequence[Demand], devices: Sequence[int], packing: Sequence[tuple[Pattern, int]], *, moves: bool = True
) -> tuple[list[Seats], list[int]]:
    """Seats of each job, and the places in the list of those that found none.

    Jobs that may stay do; the rest goes where it fits best, and with `moves` moves smaller jobs out of the way where it must. Where that
    leaves a job without a place, all are placed anew after `packing`: nodes divided in such a way, and how many.
    """
    seats, lost = _one_by_one(demands, devices, moves)
    if lost and packing:
        anew, none = _after(demands, devices, packing)
        if len(none) < len(lost):
            return anew, none
    return seats, lost


def _one_by_one(demands: Sequence[Demand], devices: Sequence[int], moves: bool) -> tuple[list[Seats], list[int]]:
    free = np.array(devices)
    spread = np.zeros(len(devices), bool)  # holds part of a job on several nodes
    seats: list[Seats] = [{} for _ in demands]
    alone: list[dict[int, int]] = [{} for _ in devices]  # jobs that sit on this node only, and their devices
    queue = []
    for i, demand in enumerate(demands):
        if demand.nodes and demand.now and len(demand.now) == demand.nodes and all(k < len(devices) for k in demand.now):
            _sit(i, demand.now, seats, free, spread, alone)
        elif demand.nodes:
            queue.append(i)
    if (free < 0).any():  # what they say they hold is more than there is
        return _one_by_one([d._replace(now={}) for d in demands], devices, moves)
    lost = []
    queue.sort(key=lambda i: (demands[i].nodes > 1, demands[i].part, demands[i].nodes))
    while queue:
        i = queue.pop()
        nodes, part, _ = demands[i]
        usable = ~spread if nodes > 1 else np.ones(len(free), bool)
        fits = np.flatnonzero(usable & (free >= part))
        if len(fits) < nodes:  # make room: nodes from which the fewest devices have to move
            movable = np.array([sum(d for d in on.values() if nodes > 1 or d < part) for on in alone])
            room = np.flatnonzero(usable & (free + (movable if moves else 0) >= part))
            if len(room) < nodes:
                lost.append(i)
                continue
            short = np.maximum(part - free[room], 0)
            fits = room[np.argsort(short, kind="stable")][:nodes]
            for k in fits:
                for other, d in sorted(alone[k].items(), key=lambda item: item[1]):
                    if free[k] >= part:
                        break
                    if nodes > 1 or d < part:
                        free[k] += d
                        del alone[k][other]
                        seats[other] = {}
                        queue.append(other)
            queue.sort(key=lambda i: (demands[i].nodes > 1, demands[i].part, demands[i].nodes))
        else:
            fits = fits[np.argsort(free[fits], kind="stable")][:nodes]  # the fullest that still have room
        _sit(i, {int(k): part for k in fits}, seats, free, spread, alone)
    return seats, lost


def _sit(i: int, where: Seats, seats: list[Seats], free: np.ndarray, spread: np.ndarray, alone: list[dict[int, int]]) -> None:
    seats[i] = dict(where)
    for k, part in where.items():
        free[k] -= part
        if len(where) > 1:
            spread[k] = True
        else:
            alone[k][i] = part


def _after(demands: Sequence[Demand], devices: Sequence[int], packing: Sequence[tuple[Pattern, int]]) -> tuple[list[Seats], list[int]]:
    """All placed anew on nodes divided as planned."""
    nodes_of: dict[int, list[int]] = {}
    for k, d in enumerate(devices):
        nodes_of.setdefault(d, []).append(k)
    slots: dict[int, list[int]] = {}
    slices: dict[int, list[int]] = {}
    for way, count in packing:
        for _ in range(count):
            node = nodes_of[way.devices].pop()
            if way.slice:
                slices.setdefault(way.slice, []).append(node)
            for part in way.parts:
                slots.setdefault(part, []).append(node)
    seats: list[Seats] = [{} for _ in demands]
    lost = []
    for i, (nodes, part, _) in enumerate(demands):
        room = slices.get(part, []) if nodes > 1 else slots.get(part, [])
        if len(room) < nodes:
            lost.append(i)
            continue
        for _ in range(nodes):
            seats[i][room.pop()] = part
    return seats, lost
