// The shapes of the answers about the timeline: a mirror of `tb_sol_plugin/web/timeline_wire.py`. Times are ns after the timeline's origin.
import type { Link } from "./types";

export type TrackKind = "worker" | "process" | "device" | "thread" | "stream" | "annotations" | "sync" | "instants" | "counter";

export interface Track {
  track: number;
  /** -1: none */
  parent: number;
  /** stable over recordings of one job */
  path: string;
  kind: TrackKind;
  label: string;
  detail: string;
  /** place in `alignment` */
  worker: number;
  pid: string;
  tid: string;
  device: number;
  stream: number;
  /** 0 of a group and of a counter */
  lanes: number;
  events: number;
  first_ns: number;
  last_ns: number;
  min_value: number | null;
  max_value: number | null;
  unit: string;
  /** shown at first */
  open: boolean;
  launches: number;
  /** place in `categories` of most of its time, -1 none */
  category: number;
}

export interface Alignment {
  worker: string;
  span: string;
  offset_ns: number;
  method: string;
  uncertainty_ns: number | null;
  text: string;
}

export interface StepBand {
  worker: number;
  label: string;
  number: number;
  start_ns: number;
  end_ns: number;
  complete: boolean;
}

export interface PhaseBand {
  worker: number;
  label: string;
  start_ns: number;
  end_ns: number;
  depth: number;
}

export interface Category {
  name: string;
  label: string;
  /** member of the palette */
  color: string;
  /** the category that this is a kind of, "" none */
  of?: string;
}

export interface TimelineShape {
  /** "" where no file has an absolute time */
  origin_ns: string;
  absolute: boolean;
  span_ns: number;
  /** where nearly all events are */
  focus: [number, number];
  outliers: { time_ns: number; events: number }[];
  fingerprint: string;
  alignment: Alignment[];
  /** ways to align the workers; none of one worker */
  alignments?: { al: string; label: string; why_not: string }[];
  /** steps that all workers have */
  align_steps?: number[];
  tracks: Track[];
  steps: StepBand[];
  phases: PhaseBand[];
  categories: Category[];
  events: number;
  names_url: string;
  /** where this server has Perfetto's page, relative to this one; "" nowhere */
  perfetto?: string;
  /** what the answer leaves out, "" where it has everything */
  notice: string;
}

/** Distinct names, the place of each one's category, and what the pages call a kernel, by id, where that is not its name. */
export interface Names {
  names: string[];
  categories: number[];
  short?: Record<string, string>;
}

export interface TimelineEvent {
  event: number;
  track: number;
  lane: number;
  name: string;
  category: number;
  start_ns: number;
  duration_ns: number;
  depth?: number;
  parent?: number;
}

export interface FlowEnd {
  event: number;
  track: number;
  lane: number;
  start_ns: number;
  end_ns: number;
  name: string;
}

export interface Flow {
  kind: string;
  source: FlowEnd;
  target: FlowEnd;
  latency_ns: number;
}

/** Links between events; of the critical path those between its stretches, in order of time. */
export interface Flows {
  flows: Flow[];
  total: number;
}

export interface EventDetail extends TimelineEvent {
  self_ns: number;
  depth: number;
  /** false: the nearest one to what was asked for */
  exact: boolean;
  fields: { label: string; value: string | number; unit: string; mark: string }[];
  arguments: Record<string, string>;
  parents: TimelineEvent[];
  children: { count: number; names: { name: string; count: number; total_ns: number }[] };
  flows: Flow[];
  flow_count: number;
  links: Link[];
}

export interface EventPage {
  events: TimelineEvent[];
  total: number;
  cursor: string;
}

export interface Hits {
  total: number;
  tracks: { track: number; count: number }[];
  /** starts in 1,024 equal parts of the window */
  histogram: number[];
  hits: TimelineEvent[];
}

/** How large a trace file will be: events in its window; bytes of its text before compression, estimated. */
export interface ExportSize {
  events: number;
  bytes: number;
}
