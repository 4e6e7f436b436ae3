// What the pointer does on a timeline: drags of areas, of the window and of the ruler, clicks, the wheel.
import { BAND } from "./head";
import type { Surface } from "./plot";
import { placed } from "./rows";
import { lengthOf, type Span, timeOf, xOf } from "./viewport";

/** px that a press must move until it is a drag. */
const MOVES = 4;

const place = (event: PointerEvent | MouseEvent): [number, number] => {
  const at = (event.currentTarget as HTMLElement).getBoundingClientRect();
  return [event.clientX - at.left, event.clientY - at.top];
};

export function onWheel(surface: Surface, event: WheelEvent, el: HTMLElement): void {
  const { model } = surface;
  const x = event.clientX - el.getBoundingClientRect().left;
  const unit = event.deltaMode === 1 ? 16 : 1;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    model.zoom(Math.exp(event.deltaY * unit * 0.0035), timeOf(x, model.window.peek(), model.width.peek()));
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
    event.preventDefault();
    model.pan(((event.deltaX || event.deltaY) * unit) / model.width.peek());
  }
}

export function bodyDown(surface: Surface, event: PointerEvent): void {
  if (event.button !== 0) return;
  const [x, y] = place(event);
  (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
  const pan = event.shiftKey || event.pointerType === "touch" || surface.model.embedded;
  surface.drag = { kind: pan ? "pan" : "area", x, y, from: surface.model.window.peek(), moved: false, free: event.altKey };
}

export function bodyMove(surface: Surface, event: PointerEvent): void {
  const [x, y] = place(event);
  const { drag, model } = surface;
  if (!drag) return surface.hover(x, y);
  if (!drag.moved && Math.abs(x - drag.x) <= MOVES) return;
  if (!drag.moved) surface.leave(); // the card of what was there before
  drag.moved = true;
  if (drag.kind === "pan") {
    const by = ((drag.x - x) / model.width.peek()) * lengthOf(drag.from);
    model.show({ start: drag.from.start + by, end: drag.from.end + by });
  } else {
    const [a, b] = [surface.snapped(drag.x, drag.y, drag.free || event.altKey), surface.snapped(x, y, drag.free || event.altKey)];
    const span = { start: Math.round(Math.max(0, Math.min(a, b))), end: Math.round(Math.max(a, b)) };
    surface.dragSpan = span.end > span.start ? span : null; // before the recording begins there is nothing to add up
    model.area.value = surface.dragSpan && { ...span, paths: pathsBetween(surface, drag.y, y) };
  }
}

/** Paths of the rows between two heights; none where they are all that is shown. */
function pathsBetween(surface: Surface, a: number, b: number): string[] {
  const rows = placed(surface.model.rows.shown.peek(), surface.scroller?.scrollTop ?? 0, surface.model.height.peek());
  const [low, high] = [Math.min(a, b), Math.max(a, b)];
  const touched = rows.filter(({ row, y }) => y < high + 1 && y + row.height > low);
  return touched.length === rows.length && rows.length > 1 ? [] : touched.map(({ row }) => row.track.path);
}

export function bodyUp(surface: Surface, event: PointerEvent, onOpen?: () => void): void {
  const { drag, model } = surface;
  const [x, y] = place(event);
  surface.drag = null;
  surface.dragSpan = null;
  if (!drag) return;
  if (drag.moved) {
    const area = model.area.peek();
    if (drag.kind === "area") model.choose(area);
    return;
  }
  if (onOpen) return onOpen();
  const item = surface.hit(x, y);
  const flow = surface.painter.arrowAt(x, y);
  if (flow && !item) return model.follow(flow);
  if (!item) {
    if (model.area.peek()) model.choose(null);
    if (model.selected.peek()) model.select(null);
    return;
  }
  if (event.ctrlKey || event.metaKey) void model.compare(item);
  else void model.pick(item);
}

export function headDown(surface: Surface, event: PointerEvent): void {
  if (event.button !== 0) return;
  const [x, y] = place(event);
  const { model } = surface;
  const parts = surface.parts();
  (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
  const from = model.window.peek();
  const inOverview = y < parts.overview[1];
  if (!inOverview) surface.drag = { kind: y < parts.ruler[1] ? "pan" : "area", x, y, from, moved: false, free: true };
  else {
    const [x0, x1] = [xOf(from.start, model.all.peek(), model.width.peek()), xOf(from.end, model.all.peek(), model.width.peek())];
    const kind = Math.abs(x - x0) < 6 ? "left" : Math.abs(x - x1) < 6 ? "right" : "window";
    model.leave();
    surface.drag = { kind, x, y, from, moved: false, free: true };
  }
}

export function headMove(surface: Surface, event: PointerEvent): void {
  const [x, y] = place(event);
  const { drag, model } = surface;
  const width = model.width.peek();
  if (!drag) {
    model.pointer = y >= surface.parts().overview[1] ? timeOf(x, model.window.peek(), width) : null;
    return surface.schedule();
  }
  drag.moved ||= Math.abs(x - drag.x) > MOVES;
  if (!drag.moved) return;
  const all = model.all.peek();
  const time = timeOf(x, all, width);
  if (drag.kind === "pan") {
    const by = ((drag.x - x) / width) * lengthOf(drag.from);
    model.show({ start: drag.from.start + by, end: drag.from.end + by });
  } else if (drag.kind === "window") {
    const began = timeOf(drag.x, all, width);
    model.show({ start: Math.min(began, time), end: Math.max(began, time) });
  } else if (drag.kind === "left") model.show({ start: Math.min(time, drag.from.end - 20), end: drag.from.end });
  else if (drag.kind === "right") model.show({ start: drag.from.start, end: Math.max(time, drag.from.start + 20) });
}

/** A band of steps or phases at a place of the head. */
function bandAt(surface: Surface, x: number, y: number): Span | null {
  const { model } = surface;
  const parts = surface.parts();
  const time = timeOf(x, model.window.peek(), model.width.peek());
  const holds = (s: { start_ns: number; end_ns: number }): boolean => s.start_ns <= time && time < s.end_ns;
  if (parts.steps && y >= parts.steps[0] && y < parts.steps[1]) {
    const found = model.steps.peek().find(holds);
    return found ? { start: found.start_ns, end: found.end_ns } : null;
  }
  if (parts.phases && y >= parts.phases[0]) {
    const depth = Math.floor((y - parts.phases[0]) / BAND);
    const found = model.phases.peek().find((p) => p.depth === depth && holds(p));
    return found ? { start: found.start_ns, end: found.end_ns } : null;
  }
  return null;
}

export function headUp(surface: Surface, event: PointerEvent): void {
  const { drag, model } = surface;
  const [x, y] = place(event);
  surface.drag = null;
  if (!drag || drag.moved) return;
  const now = model.window.peek();
  if (drag.kind === "pan") model.mark(timeOf(x, now, model.width.peek()));
  else if (drag.kind === "area") {
    const band = bandAt(surface, x, y);
    if (band) model.choose({ ...band, paths: [] });
  } else {
    const middle = timeOf(x, model.all.peek(), model.width.peek());
    model.show({ start: middle - lengthOf(now) / 2, end: middle + lengthOf(now) / 2 });
  }
}

export function headDouble(surface: Surface, event: MouseEvent): void {
  const band = bandAt(surface, ...place(event));
  if (band) surface.model.show(band, true);
}
