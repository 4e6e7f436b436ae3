// What the address says of a timeline: window, event, area, rows, search, marks. Pure.
import type { Track } from "../../api/timeline";
import { joinList, splitList } from "../../state/lists";
import type { Arrangement, Layout } from "./rows";
import type { Span } from "./viewport";

/** An event by its track's path, start and duration: never by a number of a row. */
export interface EventPlace {
  path: string;
  start: number;
  duration: number;
}

/** A stretch of time on some rows; no path: on all. */
export interface Area extends Span {
  paths: readonly string[];
}

export const spanText = (s: Span): string => `${Math.round(s.start)}-${Math.round(s.end)}`;

export function readSpan(text: string): Span | null {
  const found = /^(-?\d{1,18})-(-?\d{1,18})$/.exec(text);
  const [start, end] = found ? [Number(found[1]), Number(found[2])] : [0, 0];
  return end > start ? { start, end } : null;
}

export const eventText = (e: EventPlace): string => `${e.path}:${Math.round(e.start)}:${Math.round(e.duration)}`;

export function readEvent(text: string): EventPlace | null {
  const found = /^(.+):(-?\d{1,18}):(\d{1,18})$/s.exec(text);
  return found ? { path: found[1]!, start: Number(found[2]), duration: Number(found[3]) } : null;
}

export const areaText = (a: Area): string => spanText(a) + (a.paths.length ? `:${joinList([...a.paths])}` : "");

export function readArea(text: string): Area | null {
  const cut = text.indexOf(":");
  const span = readSpan(cut < 0 ? text : text.slice(0, cut));
  return span && { ...span, paths: cut < 0 ? [] : splitList(text.slice(cut + 1)) };
}

export const readMarks = (text: string): number[] => [...new Set(text.split(",").filter((t) => /^\d{1,18}$/.test(t)).map(Number))].sort((a, b) => a - b).slice(0, 50);

export function readArrangement(keys: Readonly<Record<string, string>>): Arrangement {
  const list = (name: string): string[] => splitList(keys[name] ?? "");
  const layout = keys["lay"];
  return { pinned: list("pin"), hidden: list("hide"), toggled: list("open"), find: "", layout: layout === "worker" || layout === "compact" ? (layout as Layout) : "" };
}

const belowWorker = (path: string): string => path.slice(path.indexOf("/") + 1);

/** The track of a path. Where one worker is shown and the path is another worker's, the same row of this one: a selection follows from rank to rank. */
export function trackOf(tracks: readonly Track[], path: string): Track | null {
  const exact = tracks.find((t) => t.path === path);
  if (exact || !path.includes("/") || tracks.filter((t) => t.parent < 0).length !== 1) return exact ?? null;
  return tracks.find((t) => t.parent >= 0 && belowWorker(t.path) === belowWorker(path)) ?? null;
}

/** Adds a path to a list, or takes it out. */
export const toggled = (list: readonly string[], path: string): string[] => (list.includes(path) ? list.filter((p) => p !== path) : [...list, path]);
