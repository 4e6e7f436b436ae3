"""Serves the timeline: its tracks, tiles of merged events, single events, search and links between events.

A tile holds what can be seen: its size is bound by pixels, not by events. Tiles carry the fingerprint of the recordings they are of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, TypeVar, get_args

import msgspec
import numpy as np
from flask import Blueprint, Response, request

from tb_sol_plugin.errors import BadQuery, Changed, NotFound
from tb_sol_plugin.metrics.time.kernel_names import KEPT, short_name
from tb_sol_plugin.metrics.timeline import counters, find, links
from tb_sol_plugin.metrics.timeline.align import Alignment, aligned, choices, common_steps
from tb_sol_plugin.metrics.timeline.detail import detail
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, COMMUNICATION, COMPUTE, MOST_READ, SHOWN
from tb_sol_plugin.metrics.timeline.kept import VERSION
from tb_sol_plugin.metrics.timeline.summary import NOTHING, Bytes
from tb_sol_plugin.metrics.timeline.timeline import Layout, Timeline, timeline_of
from tb_sol_plugin.metrics.timeline.tracks import GROUPS, short_label
from tb_sol_plugin.metrics.timeline.workers import Workers
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.tables.pyramid import TILE
from tb_sol_plugin.web import perfetto, tiles, timeline_path
from tb_sol_plugin.web import timeline_wire as shapes
from tb_sol_plugin.web.bounds import MOST_ANSWER, MOST_TEXT, ROOM, fitting, short
from tb_sol_plugin.web.context import context, limits_asked, only, wait_asked
from tb_sol_plugin.web.http import pack, pack_json, reply, while_connected

P = TypeVar("P")
timeline_api = Blueprint("timeline", __name__, url_prefix="/api/v1/timeline")

MOST_TILES: Final = 8
MOST_TRACKS: Final = 64
MOST_WORKERS: Final = 64
SUMMARIZED: Final = 8
"""More workers are opened as summaries."""
MOST_EVENTS: Final = 1_000
MOST_FLOWS: Final = 2_000
MOST_NAMES: Final = 10_000
MOST_STEPS: Final = 10_000
COARSEST: Final = 52
_LATEST: Final = 2**62
"""Times that are asked for, ns, are no later, and no earlier than as much below 0."""
_ROOM: Final = MOST_ANSWER // 2 - ROOM
"""Bytes of JSON of the rows; the steps have half as much, and so have the phases."""
_SHORTER: Final = (MOST_TEXT, 400, 100, 40, 20, 12)
"""Characters that each name may have where all of them are too many for an answer, the first that does."""
WHICH: Final = ("run", "worker", "span", "capture", "wait", "fp", "al", "lay")
_FOREVER: Final = "private, max-age=31536000, immutable"
_BINARY: Final = "application/octet-stream"


class Shown:
    """The timelines of a request, and the name of their state."""

    def __init__(self, workers: Workers, fingerprint: str) -> None:
        self.workers = workers
        self.fingerprint = fingerprint


def shown() -> Shown:
    """Returns the timelines that run, worker and span name; several workers of one run stand under each other. StillLoading; Changed."""
    store = context().store
    names = request.args.getlist("worker") or [""]
    spans = request.args.getlist("span") or [""]
    if len(names) > MOST_WORKERS:
        raise BadQuery(f"{len(names)} workers", hint=f"choose at most {MOST_WORKERS}", field="worker")
    wanted = [(worker, spans[i] if i < len(spans) else "") for i, worker in enumerate(names)]
    run, chosen = request.args.get("run", ""), request.args.get("capture", "")
    recordings = [store.with_graph_capture(store.recording(run, worker, span), chosen) for worker, span in wanted]
    captures = [store.capture(one, wait_asked()) for one in recordings]
    timelines = [timeline_of(capture, _layout()) for capture in captures]
    alignment = aligned(timelines, request.args.get("al", ""))
    state = repr((VERSION, alignment, _layout(), [(cache_key(r), c.attached_state) for r, c in zip(recordings, captures, strict=True)]))
    fingerprint = hashlib.blake2b(state.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    if request.args.get("fp", fingerprint) != fingerprint:
        stale = Changed("the recording has changed since this timeline was shown", hint="request api/v1/timeline again", field="fp")
        stale.now = fingerprint
        raise stale
    return Shown(_joined(timelines, alignment), fingerprint)


def _layout() -> Layout:
    text = request.args.get("lay", "process")
    if text not in get_args(Layout):
        raise BadQuery(f"no layout {text[:40]!r}", hint=f"choose {' or '.join(get_args(Layout))}", field="lay")
    return "compact" if text == "compact" else "process"


def _joined(timelines: list[Timeline], alignment: list[Alignment]) -> Workers:
    first = timelines[0]
    key = ("timeline.workers", tuple(id(t) for t in timelines))
    kept = first.capture.memo.get(key)
    if not isinstance(kept, Workers):
        kept = first.capture.memo[key] = Workers(timelines, alignment)
    return kept if kept.alignment == alignment else kept.aligned(alignment)


@timeline_api.get("")
def timeline() -> Response:
    """Returns tracks, steps, phases and categories of the timeline."""
    only(*WHICH)
    seen = shown()
    for one in seen.workers.timelines:
        one.read_ahead(lanes=len(seen.workers.timelines) <= SUMMARIZED)
    query = "&".join(f"{k}={_quoted(v)}" for k in ("run", "worker", "span", "al", "lay") for v in request.args.getlist(k) if v)
    names_url = f"api/v1/timeline/names?{query}&fp={seen.fingerprint}"
    made = context().memo.get(("timeline", seen.fingerprint), lambda: pack_json(shape_of(seen.workers, seen.fingerprint, names_url)))
    return reply(made, request)


def shape_of(w: Workers, fingerprint: str, names_url: str) -> shapes.TimelineShape:
    """Returns tracks, steps, phases and categories of timelines; fingerprint: of their state, names_url: where their names are."""
    tracks: list[shapes.TrackShape] = []
    steps, phases, outliers, focus = [], [], [], []
    for worker, (one, moved) in enumerate(zip(w.timelines, w.alignment, strict=True)):
        for local, t in enumerate(one.tracks):
            parent = w.number(worker, t.parent) if t.parent >= 0 else -1
            tracks.append(
                shapes.TrackShape(
                    w.number(worker, local), parent, t.path, t.kind, t.label, t.detail, worker, short_label(t.pid), short_label(t.tid),
                    t.device, t.stream, t.lanes,
                    t.events, t.first_ns + moved.offset_ns, t.last_ns + moved.offset_ns, t.low, t.high, t.unit, t.open, t.launches,
                    t.category,
                )
            )  # fmt: skip
        table, by = one.capture.steps, moved.offset_ns
        columns = zip(*(table[c].to_list() for c in ("number", "name", "host_start_ns", "host_end_ns", "complete")), strict=True)
        steps += [shapes.StepShape(worker, short(str(name)), n, a + by, b + by, bool(c)) for n, name, a, b, c in columns if n >= 0]
        phases += [shapes.PhaseShape(worker, short(p.label), p.start_ns + by, p.end_ns + by, p.depth) for p in one.bands]
        low, high, far = one.focus()
        focus.append((low + by, high + by))
        outliers += [shapes.OutlierShape(time + by, count) for time, count in far]
    notice = _cut_to_fit({"rows": (tracks, _ROOM), "steps": (steps, _ROOM // 2), "phases": (phases, _ROOM // 2)})
    origin = w.origin_ns
    return shapes.TimelineShape(
        origin_ns="" if origin is None else str(origin),
        absolute=origin is not None,
        span_ns=w.span_ns,
        focus=(min(a for a, _ in focus), max(b for _, b in focus)),
        outliers=outliers,
        fingerprint=fingerprint,
        alignment=[
            shapes.AlignmentShape(a.worker, a.span, a.offset_ns, a.method, a.uncertainty_ns, a.text) for a in w.alignment
        ],
        alignments=[shapes.AlignmentChoice(c.asked, c.label, c.why_not) for c in choices(w.timelines)],
        align_steps=common_steps(w.timelines)[:MOST_STEPS] if len(w.timelines) > 1 else [],
        tracks=tracks,
        steps=steps,
        phases=phases,
        categories=[shapes.CategoryShape(*one, of="" if i < len(CATEGORIES) else CATEGORIES[COMPUTE][0]) for i, one in enumerate(SHOWN)],
        events=sum(len(t.events) for t in w.timelines),
        names_url=names_url,
        perfetto=perfetto.address(),
        notice=notice,
    )


def _cut_to_fit(lists: Mapping[str, tuple[list[Any], int]]) -> str:
    """Cut each list to the bytes of JSON that it may have; returns what is left out, in words, "" where nothing is."""
    left = []
    for what, (every, most) in lists.items():
        if (kept := fitting(every, most)) < len(every):
            left.append(f"{len(every) - kept:,} of {len(every):,} {what}")
            del every[kept:]
    return f"An answer has at most {MOST_ANSWER // 10**6} MB. Left out here: {', '.join(left)}." if left else ""


def _quoted(value: str) -> str:
    from urllib.parse import quote

    return quote(value, safe="", errors="surrogatepass")


@timeline_api.get("/names")
def names() -> Response:
    """Returns the distinct names of events."""
    only(*WHICH)
    seen = shown()
    made = context().memo.get(("timeline.names", seen.fingerprint), lambda: pack_json(names_of(seen.workers)))
    return reply(made, request, cache=_kept())


def names_of(w: Workers) -> shapes.NamesShape:
    """Returns the names; of too many or too long ones the middle of each is left out, or the last of them."""
    found, categories = w.names, w.name_shown
    short = _short_names(found, w.name_categories)
    room = MOST_ANSWER - ROOM - 3 * len(categories) - len(msgspec.json.encode(short))
    lengths = np.fromiter(map(len, found), np.int64, len(found))
    cut, size = found, 0
    for most in (int(lengths.max(initial=0)), *_SHORTER):
        least = int(np.minimum(lengths, most).sum()) + 3 * len(found)
        if least > room and most != _SHORTER[-1]:
            continue  # without writing it
        cut = found if most >= lengths.max(initial=0) else [_ends(name, most) for name in found]
        if least * 6 <= room or (size := len(msgspec.json.encode(cut))) <= room:  # a character has up to six bytes of JSON
            return shapes.NamesShape(cut, categories, short)
    count = max(int(len(found) * (MOST_ANSWER - ROOM) / (size + 3 * len(found)) * 0.9), 1)
    return shapes.NamesShape(cut[:count], categories[:count], {})


def _short_names(names: list[str], categories: list[int]) -> dict[int, str]:
    """Returns the short names of kernels; of more than are read at once none."""
    kernels = [i for i, c in enumerate(categories) if c in (COMPUTE, COMMUNICATION)]
    few = len(kernels) <= KEPT and sum(len(names[i]) for i in kernels) <= MOST_READ
    short = {i: short_name(names[i]) for i in kernels} if few else {}
    return {i: text for i, text in short.items() if text != names[i]}


def _ends(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-((most - 1) // 2) :]}"


def _kept() -> str:
    return _FOREVER if request.args.get("fp") else "no-cache"


# -- tiles -----------------------------------------------------------------------------------------------------------


@timeline_api.get("/tiles")
def tiles_of() -> Response:
    """Returns tiles of some tracks, as bytes or as JSON."""
    only(*WHICH, "z", "i", "tracks", "format")
    z = whole("z", 0, COARSEST)
    first, last = _range("i", request.args.get("i", "0"))
    if last - first >= MOST_TILES:
        raise BadQuery(f"{last - first + 1} tiles", hint=f"ask for at most {MOST_TILES}", field="i")
    if (last + 1) << (z + TILE) > _LATEST:
        raise BadQuery(f"no tile {last} at level {z}", hint="ask for tiles that end before 2^62 ns", field="i")
    form = request.args.get("format", "binary")
    if form not in ("binary", "json"):
        raise BadQuery(f"no format {form[:40]!r}", hint="choose binary or json", field="format")
    seen = shown()
    wanted = tracks_asked(seen.workers, MOST_TRACKS)
    if wanted is None:
        raise BadQuery("parameter 'tracks' is missing", hint="give numbers and ranges of tracks as 0-5,9", field="tracks")
    if form == "json":
        columns = (one for track in _while_connected(wanted) for one in _columns(seen.workers, track, z, first, last))
        every = _bounded(((one["i"], msgspec.json.encode(one)) for one in columns), lambda one: len(one[1]))
        body = {"v": tiles.VERSION, "z": z, "blocks": [msgspec.Raw(one) for _, one in sorted(every, key=itemgetter(0))]}
        return reply(pack(msgspec.json.encode(body)), request, cache=_kept())
    made = _bounded((one for track in _while_connected(wanted) for one in _blocks(seen, track, z, first, last)), lambda block: block.size)
    return reply(pack(tiles.join(z, sorted(made, key=lambda block: block.header["i"])), _BINARY), request, cache=_kept())


def _while_connected(tracks: list[int]) -> Iterator[int]:
    """Yields tracks while the client is there."""
    for track in tracks:
        while_connected()
        yield track


def _blocks(seen: Shown, track: int, z: int, first: int, last: int) -> list[tiles.Block]:
    """Returns the tiles of a track; those that are not kept are made together, and by one request however many ask for them."""
    memo = context().tiles
    if (alike := seen.workers.alike(track)) != track:
        return [tiles.Block(block.header | {"track": track}, block.body) for block in _blocks(seen, alike, z, first, last)]
    keys = {i: (seen.fingerprint, track, z, i) for i in range(first, last + 1)}

    def kept() -> dict[int, tiles.Block]:
        return {i: block for i, key in keys.items() if (block := memo.peek(key)) is not None}

    if len(found := kept()) < len(keys):
        with memo.alone((seen.fingerprint, track, z)):
            found = kept()
            if lacking := [i for i in keys if i not in found]:
                low, high = lacking[0], lacking[-1]
                for i, block in zip(range(low, high + 1), tiles_made(seen.workers, track, z, low, high), strict=True):
                    found[i] = block
                    memo.put(keys[i], block)
    return [found[i] for i in keys]


def _bounded(parts: Iterable[P], size: Callable[[P], int]) -> list[P]:
    """Returns the parts of an answer. BadQuery where they are too large for one."""
    out, total = [], 0
    for part in parts:
        total += size(part)
        if total > MOST_ANSWER - ROOM:
            large = f"these tiles have more than {MOST_ANSWER // 10**6} MB"
            raise BadQuery(large, hint="ask for fewer tracks or tiles at a time", field="tracks")
        out.append(part)
    return out


def tiles_made(workers: Workers, track: int, z: int, first: int, last: int) -> list[tiles.Block]:
    """Returns the tiles of a track from one to another at a level."""
    one, shape, local, offset = workers.at(track)
    begins = [(i << (z + TILE)) - offset for i in range(first, last + 1)]
    if shape.kind in GROUPS:
        return [tiles.summary(i, track, columns) for i, columns in enumerate(_summaries(one, local, z, begins), first)]
    wide = 1 << (z + TILE)
    if shape.series >= 0:
        points = (counters.bucketed(one.series[shape.series], z, begin, begin + wide) for begin in begins)
        return [tiles.counter(i, track, z, found, begin) for i, found, begin in zip(range(first, last + 1), points, begins, strict=True)]
    worker, _ = workers.worker_of(track)
    found = one.items(local, z, [*begins, begins[-1] + wide])
    names = workers.name_ids(worker, np.concatenate([items.event for items, _ in found]))
    out, at = [], 0
    for i, begin, (items, lanes) in zip(range(first, last + 1), begins, found, strict=True):
        out.append(tiles.slices(i, track, z, begin, items, lanes, names[at : at + len(items)]))
        at += len(items)
    return out


def prepare(capture: Capture) -> None:
    """Makes what is asked for first of a timeline, of a few events: the first answers about a real one find all they need loaded."""
    one = timeline_of(capture)
    w = Workers([one], aligned([one], ""))
    for z in range(0, one.top + 1, 2):
        tiles.join(z, (block for track in range(len(one.tracks)) for block in tiles_made(w, track, z, 0, 3)))
    msgspec.json.encode(shape_of(w, "", ""))
    for at in range(min(len(one.events), 2)):
        detail(one, at)
        events_shown(w, 0, [at])


def _summaries(one: Timeline, track: int, z: int, begins: list[int]) -> Iterator[tuple[Bytes, Bytes, Bytes]]:
    """Yields category, busy share and depth per bucket of tiles in a row."""
    count = len(begins) << TILE
    category, share = one.summary(track).tile(begins[0] + (np.arange(count + 1, dtype=np.int64) << z))
    depth = one.depth(track, z, begins[0], share)
    for at in range(0, count, 1 << TILE):
        rows = slice(at, at + (1 << TILE))
        yield category[rows], share[rows], depth[rows]


def _columns(workers: Workers, track: int, z: int, first: int, last: int) -> Iterator[dict[str, object]]:
    """Yields the tiles of a track from one to another at a level, as columns with exact times."""
    one, shape, local, offset = workers.at(track)
    begins = [(i << (z + TILE)) - offset for i in range(first, last + 1)]
    if shape.kind in GROUPS:
        for i, (category, busy, depth) in enumerate(_summaries(one, local, z, begins), first):
            values = {"category": category.tolist(), "busy": busy.tolist(), "depth": depth.tolist()}
            yield {"i": i, "track": track, "kind": "summary", "none": NOTHING} | values
        return
    wide = 1 << (z + TILE)
    if shape.series >= 0:
        for i, begin in enumerate(begins, first):
            p = counters.bucketed(one.series[shape.series], z, begin, begin + wide)
            before = p.before if p.before == p.before else None
            points: dict[str, object] = {"min": p.low.tolist(), "max": p.high.tolist(), "last": p.last.tolist()}
            yield {
                "i": i, "track": track, "kind": "counter", "exact": p.exact, "before": before, "time_ns": (p.time_ns + offset).tolist(),
            } | points  # fmt: skip
        return
    worker, _ = workers.worker_of(track)
    for i, (items, lanes) in enumerate(one.items(local, z, [*begins, begins[-1] + wide]), first):
        yield {
            "i": i, "track": track, "kind": "slices", "complete": bool((items.count == 1).all()), "lanes": lanes.tolist(),
            "start_ns": (items.start + offset).tolist(), "end_ns": (items.end + offset).tolist(), "event": items.event.tolist(),
            "name": workers.name_ids(worker, items.event).tolist(), "count": items.count.tolist(), "busy_ns": items.busy.tolist(),
        }  # fmt: skip


# -- single events ---------------------------------------------------------------------------------------------------


@timeline_api.get("/event")
def event() -> Response:
    """Returns all that is known of one event, named by its id, or by its start and duration."""
    only(*WHICH, "track", "event", "start_ns", "duration_ns", "device_limits")
    w = shown().workers
    track = _track(w)
    one, _, local, offset = w.at(track)
    if request.args.get("event"):
        number, exact = whole("event", 0, len(one.events) - 1), True
    else:
        start, duration = whole("start_ns", -_LATEST, _LATEST) - offset, whole("duration_ns", 0, _LATEST)
        number = one.find(local, start, duration)
        exact = number >= 0 and [int(x[0]) for x in one.events.times(np.array([number], np.uint32))] == [start, duration]
    if number < 0:
        raise NotFound(f"track {track} has no events", hint="choose a thread or a stream", field="track")
    worker, _ = w.worker_of(track)
    found = detail(one, number, limits_asked())
    (shape,) = events_shown(w, worker, [number])
    name = one.events.names.text[int(one.events.name_ids(np.array([number], np.uint32))[0])]
    children = shapes.ChildrenShape(found.children, [shapes.ChildShape(short(text), n, ns) for text, n, ns in found.child_names])
    flows, count = _flows(w, worker, links.of_event(one, number), 100)
    return reply(
        pack_json(
            shapes.DetailShape(
                shape.track, shape.lane, number, name, shape.category, shape.start_ns, shape.duration_ns, found.self_ns, found.depth,
                exact, [shapes.FieldShape(f.label, f.value, f.unit, f.mark) for f in found.fields], found.arguments,
                events_shown(w, worker, found.parents),
                children, flows, count, found.links,
            )
        ),
        request,
        cache="no-cache",
    )  # fmt: skip


def events_shown(w: Workers, worker: int, ids: list[int]) -> list[shapes.EventShape]:
    """Returns what the page knows of some events of a worker, by their ids."""
    one, offset = w.timelines[worker], w.alignment[worker].offset_ns
    found = np.array(ids, np.uint32)
    start, duration = one.events.times(found)
    track, lane = one.located(found) if len(found) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    names = one.events.names
    place = one.events.name_ids(found).tolist()
    return [
        shapes.EventShape(e, w.number(worker, t), at, short(names.text[n]), int(names.shown[n]), a + offset, d, at)
        for e, t, at, n, a, d in zip(ids, track.tolist(), lane.tolist(), place, start.tolist(), duration.tolist(), strict=True)
    ]


@timeline_api.get("/events")
def events() -> Response:
    """Returns the exact events of a track in a window, in order of time, a page at a time."""
    only(*WHICH, "track", "lane", "start_ns", "end_ns", "cursor", "limit")
    w = shown().workers
    track = _track(w)
    one, shape, local, offset = w.at(track)
    lane = whole("lane", 0, max(shape.lanes - 1, 0)) if request.args.get("lane") else None
    begin, end = _times(w)
    limit = whole("limit", 1, MOST_EVENTS, MOST_EVENTS)
    after = whole("cursor", 0, 2**40, 0)
    page, total = find.page(one, local, lane, begin - offset, end - offset, after, limit)
    worker, _ = w.worker_of(track)
    out = events_shown(w, worker, page.tolist())
    host, parent = one.events.base("device"), one.capture.host["parent"].to_numpy()
    for item in out:
        item.parent = int(parent[item.event]) if item.event < host else -1
    cursor = str(after + limit) if after + limit < total else ""
    return reply(pack_json(shapes.EventsShape(out, total, cursor)), request)


@timeline_api.get("/search")
def search() -> Response:
    """Returns events by name: how many, where, and the next ones from a time on."""
    only(*WHICH, "names", "text", "start_ns", "end_ns", "tracks", "after_ns", "direction", "limit")
    w = shown().workers
    begin, end = _times(w)
    limit = whole("limit", 1, MOST_EVENTS, 100)
    after = whole("after_ns", -_LATEST, _LATEST, begin)
    direction: find.Direction = "previous" if (way := request.args.get("direction", "next")) == "previous" else "next"
    if way != direction:
        raise BadQuery(f"no direction {way[:40]!r}", hint="choose next or previous", field="direction")
    given, text = request.args.get("names", ""), request.args.get("text", "")
    if not given and not text:
        raise BadQuery("nothing to search for", hint="give names (ids) or text", field="text")
    ids = _numbers("names", given, len(w.names), MOST_NAMES) if given else None
    wanted = tracks_asked(w, w.track_count)
    total, histogram, tracks, hits = 0, np.zeros(find.BUCKETS, np.int64), [], []
    for worker, one in enumerate(w.timelines):
        offset = w.alignment[worker].offset_ns
        local = find.matching(one.events.names.text, text) if ids is None else w.local_names(worker, np.array(ids))
        mine = None if wanted is None else [t for number in wanted for at, t in [w.worker_of(number)] if at == worker]
        found = find.search(one, local, mine, begin - offset, end - offset, after=after - offset, limit=limit, direction=direction)
        total += found.total
        histogram += found.histogram
        tracks += [shapes.TrackCount(w.number(worker, t), n) for t, n in found.per_track]
        hits += events_shown(w, worker, found.event.tolist())
    hits.sort(key=lambda hit: hit.start_ns, reverse=direction == "previous")
    return reply(pack_json(shapes.HitsShape(total, tracks, histogram.tolist(), hits[:limit])), request)


@timeline_api.get("/flows")
def flows() -> Response:
    """Returns links between events: of some events, or of a window; the longest latencies first.

    kind: launch, backward, all where it is left out; path: from each stretch of the critical path on a thread or stream to the next.
    """
    only(*WHICH, "events", "start_ns", "end_ns", "kind")
    w = shown().workers
    kind = request.args.get("kind", "")
    if kind == "path":
        return reply(pack_json(timeline_path.flows(w, *_times(w), MOST_FLOWS, events_shown)), request)
    if kind and kind not in links.KINDS:
        raise BadQuery(f"no kind {kind[:40]!r}", hint=f"choose {', '.join(links.KINDS)} or path", field="kind")
    chosen = [k for k in links.KINDS if k == kind or not kind]
    out: list[shapes.FlowShape] = []
    total = 0
    given = request.args.get("events", "")
    if given:
        of_worker: dict[int, list[links.Pairs]] = {}
        for one in given.split(",", MOST_EVENTS)[:MOST_EVENTS]:
            track, _, number = one.partition(":")
            worker, _ = w.worker_of(_number("events", track, 0, w.track_count - 1))
            timeline = w.timelines[worker]
            pairs = links.of_event(timeline, _number("events", number, 0, len(timeline.events) - 1))
            of_worker.setdefault(worker, []).extend(p for p in pairs if p.kind in chosen)
        for worker, pairs in of_worker.items():
            found, count = _flows(w, worker, links.joined(pairs), MOST_FLOWS)
            out, total = out + found, total + count
    else:
        begin, end = _times(w)
        for worker, timeline in enumerate(w.timelines):
            offset = w.alignment[worker].offset_ns
            found, count = _flows(w, worker, links.in_window(timeline, chosen, begin - offset, end - offset), MOST_FLOWS)
            out, total = out + found, total + count
    out.sort(key=lambda flow: -flow.latency_ns)
    return reply(pack_json(shapes.FlowsShape(out[:MOST_FLOWS], total)), request)


def _flows(w: Workers, worker: int, pairs: list[links.Pairs], most: int) -> tuple[list[shapes.FlowShape], int]:
    """Returns the links with the longest latencies, and how many there are."""
    out: list[shapes.FlowShape] = []
    for one in pairs:
        best, latency = links.longest(w.timelines[worker], one, most)
        source, target = (events_shown(w, worker, ids.tolist()) for ids in (best.source, best.target))
        out += [
            shapes.FlowShape(one.kind, _end(a), _end(b), ns) for a, b, ns in zip(source, target, latency.tolist(), strict=True)
        ]
    return out[:most], sum(len(one) for one in pairs)


def _end(one: shapes.EventShape) -> shapes.FlowEnd:
    return shapes.FlowEnd(one.event, one.track, one.lane, one.start_ns, one.start_ns + one.duration_ns, one.name)


# -- parameters ------------------------------------------------------------------------------------------------------


def _number(field: str, text: str, low: int, high: int) -> int:
    try:
        value = int(text) if len(text) <= 24 and text.isascii() else None
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise BadQuery(f"parameter {field!r} does not fit: {text[:40]!r}", hint=f"give a whole number from {low} to {high}", field=field)
    return value


def whole(field: str, low: int, high: int, default: int | None = None) -> int:
    text = request.args.get(field, "")
    if not text and default is not None:
        return default
    return _number(field, text, low, high)


def _range(field: str, text: str, high: int = 2**40) -> tuple[int, int]:
    begin, dash, end = text.partition("-")
    first = _number(field, begin, 0, high)
    return first, _number(field, end, first, high) if dash else first


def _numbers(field: str, text: str, count: int, most: int) -> list[int]:
    """Returns the numbers of a list of numbers and ranges, all below `count`."""
    out: list[int] = []
    for part in text.split(","):
        first, last = _range(field, part, max(count - 1, 0))
        if len(out) + last - first >= most:
            raise BadQuery(f"more than {most:,} {field}", hint="ask for fewer at a time", field=field)
        out += range(first, last + 1)
    return list(dict.fromkeys(out))


def tracks_asked(w: Workers, most: int) -> list[int] | None:
    text = request.args.get("tracks", "")
    return _numbers("tracks", text, w.track_count, most) if text else None


def _track(w: Workers) -> int:
    return whole("track", 0, w.track_count - 1)


def _times(w: Workers) -> tuple[int, int]:
    begin = whole("start_ns", -_LATEST, _LATEST, 0)
    end = whole("end_ns", -_LATEST, _LATEST, w.span_ns)
    if end < begin:
        raise BadQuery("the window ends before it begins", hint="give end_ns at or after start_ns", field="end_ns")
    return begin, end


