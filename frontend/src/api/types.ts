// The shapes the server answers with. The report half mirrors `tb_sol_plugin/model/report.py`; fields at their default are left out on the wire.

export type Scalar = string | number | boolean | null;
export type Show = "number" | "bar" | "share" | "efficiency" | "stack" | "badge" | "code" | "symbol" | "tree" | "text" | "shapes";
export type MarkState = "estimated" | "unverified" | "flagged" | "unknown" | "lower_bound" | "partial" | "incomplete";

export interface Link {
  analysis: string;
  query?: Record<string, string>;
  label?: string;
}

export interface Mark {
  state: MarkState;
  why?: string;
}

export interface Column {
  name: string;
  label: string;
  unit?: string;
  doc?: string;
  show?: Show;
  rank?: number;
  color?: string;
  color_by?: string;
  parts?: string[];
  part_colors?: string[];
  missing?: string;
  /** the column with the whole of an abbreviated text */
  full?: string;
  /** "call": a time of single calls */
  per?: string;
}

interface SectionBase {
  id: string;
  title: string;
  subtitle?: string;
  span?: number;
  weight?: "headline" | "card" | "full";
  error?: string;
  links?: Link[];
}

export interface FactsSection extends SectionBase {
  kind: "facts";
  values: Record<string, Scalar>;
  units?: Record<string, string>;
  labels?: Record<string, string>;
  docs?: Record<string, string>;
  notes?: Record<string, string>;
  colors?: Record<string, string>;
  marks?: Record<string, Mark>;
  value_links?: Record<string, Link>;
  hidden?: string[];
  /** the same values of a baseline */
  base?: Record<string, Scalar>;
  style?: "list" | "tiles" | "equation" | "split" | "card";
  text?: string;
}

/** Rows of a large table: `rows` are their places in the whole table, by which marks and links go; the first `length` stand from `offset` on. */
export interface TablePage {
  table: string;
  version: string;
  offset: number;
  length: number;
  /** rows that pass the filters */
  count: number;
  /** all rows */
  of: number;
  rows?: number[];
  data?: Record<string, Scalar[]>;
  marks?: Record<string, Record<string, Mark>>;
  cell_links?: Record<string, Record<string, Link>>;
  row_links?: Record<string, Link>;
  sums?: Record<string, Scalar>;
  /** of a tree: rows in the order, without those of closed branches */
  shown?: number | null;
  depth?: number[];
  /** 0 no rows below, 1 closed, 2 open */
  branch?: number[];
  /** what each row's parent says in the tree's column */
  above?: (string | null)[];
  /** ids to open to show the row that was asked for */
  path?: string[];
  /** keys of points that pass, by figure */
  passing?: Record<string, string[]>;
  /** where the row stands that was looked for by its key */
  at?: number | null;
}

/** What stands for the rows of a large table; the others are requested when they are shown. */
export interface TablePages {
  rows: number;
  version: string;
  page: TablePage;
  /** values of each column that stand for all in its unit and width */
  profile?: Record<string, Scalar[]>;
  full?: Record<string, number>;
  values?: Record<string, [string, number][]>;
  additive?: string[];
  partial?: string[];
}

export interface TableSection extends SectionBase {
  kind: "table";
  columns: Column[];
  data: Record<string, Scalar[]>;
  key?: string;
  tree?: { id: string; parent: string } | null;
  sort?: { column: string; descending?: boolean } | null;
  total?: Record<string, Scalar> | null;
  /** of a table without a total: columns that add up over its rows */
  adds?: string[];
  last?: string[];
  /** keys of rows whose values do not count for the scale of a column */
  apart?: string[];
  marks?: Record<string, Record<string, Mark>>;
  cell_links?: Record<string, Record<string, Link>>;
  row_links?: Record<string, Link>;
  filters?: string[];
  /** where its rows are on the timeline: the column with the link, columns of start and duration, ns to add to the start, and what of a row that is more than one stretch */
  timeline?: { column: string; start: string; duration: string; offset_ns?: number; what?: string } | null;
  footer?: string;
  empty?: string;
  truncated?: number;
  pages?: TablePages | null;
}

/** The annotation of a selected point: its ring in data units (of `xaxis`, or of the strip's `xaxis2`), the end of its line, the words there. */
export interface PointNote {
  x: number;
  y: number;
  limit?: number | null;
  text?: string;
  axis?: "x" | "x2";
}

/** Where dragging and clicking along x lead: the query fields that a window and a moment are written to; ns per unit of the axis. */
export interface Zoom {
  window: string;
  at?: string;
  scale?: number;
}

/** The part of the x axis that a table row is about; without an end: to the edge. */
export interface Stretch {
  start?: number | null;
  end?: number | null;
  text?: string;
}

export interface FigureSection extends SectionBase {
  kind: "figure";
  figure: { data?: Record<string, unknown>[]; layout?: Record<string, unknown> };
  summary?: string;
  table?: string;
  notes?: Record<string, PointNote>;
  height?: number;
  zoom?: Zoom | null;
  /** by table and row key */
  stretches?: Record<string, Record<string, Stretch>>;
  /** by the y of a point */
  asks?: Record<string, Record<string, string>>;
}

export interface Finding {
  rule: string;
  title: string;
  evidence: string;
  saving_ns?: number | null;
  /** where the saving is that of a replay, what the fix takes away */
  removed_ns?: number | null;
  /** it saves next to nothing: other work holds the step */
  hidden?: boolean;
  saving_bytes?: number | null;
  share?: number | null;
  fix?: string;
  link?: Link | null;
  /** the view of exactly the rows that the saving is taken from */
  rows?: Link | null;
  color?: string;
  candidate?: boolean;
}

export interface FindingsSection extends SectionBase {
  kind: "findings";
  findings: Finding[];
  combined_ns?: number | null;
  saves?: "time" | "memory";
  empty?: string;
}

export interface TimelineSection extends SectionBase {
  kind: "timeline";
  /** the window to open with, ns after the start of the recording; null: everything */
  start_ns?: number | null;
  end_ns?: number | null;
  /** paths of tracks; none: all */
  tracks?: string[];
  /** begin, end, word */
  highlight?: [number, number, string][];
  /** the critical path is drawn */
  path?: boolean;
  /** px; 0: as the page has room */
  height?: number;
}

export type Section = FactsSection | TableSection | FigureSection | FindingsSection | TimelineSection;

export interface Notice {
  text: string;
  level?: "info" | "warn" | "error";
  link?: Link | null;
}

export interface FieldNow {
  value?: string;
  values?: string[];
  /** it changes nothing as the other fields are */
  idle?: boolean;
}

export interface Report {
  analysis: string;
  title: string;
  available: true;
  headline?: string;
  selection?: Record<string, Scalar>;
  notices?: Notice[];
  sections: Section[];
  /** query fields that depend on others: the value used where one is left open, and values that would do as well */
  fields?: Record<string, FieldNow>;
  /** how many workers of a run it covers already, while the others are being read */
  reading?: { done: number; total: number } | null;
  /** it may say more when it is asked for again, once other pages have read the other ranks */
  provisional?: boolean;
  /** small files for other programs */
  files?: { id: string; label: string; file: string; text: string; mimetype?: string }[];
}

export interface Unavailable {
  analysis: string;
  title: string;
  available: false;
  because: string;
  record_it_with: string;
  argument?: string;
  fields?: Record<string, FieldNow>;
}

export interface ErrorBody {
  code: string;
  message: string;
  hint?: string;
  field?: string;
  file?: string;
  id?: string;
}

export interface Progress {
  bytes?: number;
  total?: number;
  events?: number;
  stage?: string;
  elapsed_s?: number;
  queue_position?: number | null;
  of?: string;
}

export interface Companion {
  worker: string;
  span: string;
  file?: string;
}

export interface Span {
  name: string;
  /** a profiler trace ("kineto") or a SOL capture ("sol_capture") */
  kind?: string;
  /** the other recording of the same worker */
  companion?: Companion | null;
  label?: string;
  file?: string;
  size?: number;
  mtime?: number;
  state?: "new" | "queued" | "loading" | "ready" | "error";
  error?: ErrorBody | null;
}

export interface Worker {
  name: string;
  rank?: number | null;
  spans: Span[];
}

export interface Run {
  name: string;
  workers: Worker[];
}

/** What is known of a run without opening it; times in seconds since the epoch. */
export interface RunSummary {
  run: string;
  mtime: number;
  recorded?: number | null;
  device?: string;
  step_ns?: number | null;
  /** there was no step: the whole recording */
  whole?: boolean;
  ratio?: number | null;
  estimated?: boolean;
}

export interface Summaries {
  runs: RunSummary[];
}

export interface Hit {
  kind: string;
  name: string;
  ns: number | null;
  note: string;
  link: Link;
}

export interface Found {
  query: string;
  hits: Hit[];
  counts: Record<string, number>;
}

export interface Rejected {
  file: string;
  size?: number | null;
  what?: string;
  note?: string;
}

export interface Scan {
  state: "scanning" | "done" | "error";
  files?: number;
  directories?: number;
  elapsed_ms?: number;
  roots?: string[];
  stopped?: string | null;
  errors?: (string | ErrorBody)[];
}

export interface Runs {
  scan: Scan;
  runs: Run[];
  rejected?: Rejected[];
  notes?: string[];
  /** files and folders of graph captures */
  captures?: string[];
  features?: { original?: boolean; bind_all?: boolean; version?: string };
}

export interface QueryField {
  name: string;
  type: "text" | "choice" | "number" | "flag" | "rows";
  default?: string;
  choices?: string[];
  label?: string;
  doc?: string;
  page?: string;
  /** values that a slider steps through */
  slider?: string[];
  /** heading of its group in the card of fields */
  group?: string;
  /** hidden behind a button until it is set */
  seldom?: boolean;
  /** of a list of rows, as JSON: the fields that each has, which are fields of the query too */
  rows?: string[];
}

export interface AnalysisInfo {
  name: string;
  title: string;
  question?: string;
  group?: string;
  order?: number;
  icon?: string;
  available?: boolean;
  because?: string;
  record_it_with?: string;
  argument?: string;
  fields?: QueryField[];
  count?: number;
  /** the analysis that it is a further view of */
  under?: string;
  /** it answers without a recording */
  alone?: boolean;
  /** it can be set against a baseline */
  compares?: boolean;
}

export interface Step {
  number: number;
  name?: string;
  start_ns?: number;
  duration_ns?: number;
  complete?: boolean;
}

/** One ceiling of a device: base units, and where the figure comes from. */
export interface DeviceFigure {
  name: string;
  label: string;
  value: Scalar;
  unit?: string;
  provenance?: string;
  source?: string;
}

export interface DeviceInfo {
  key?: string;
  name?: string;
  method?: string;
  unverified?: string[];
  source?: string;
  notes?: string;
  caution?: string;
  figures?: DeviceFigure[];
}

export interface Analyses {
  analyses: AnalysisInfo[];
  steps?: Step[];
  device?: DeviceInfo | null;
  device_note?: string;
  devices?: string[];
  /** analyses that could not be loaded: name and reason */
  failed?: Record<string, string>;
  /** whether graphs were launched, and the files that name what they replay */
  replays?: boolean;
  named_by?: string;
}
