// 16 px icons: 1.5 px strokes, round caps, the current color.
import type { JSX } from "preact";

const PATHS: Record<string, string> = {
  overview: "M2.5 12a5.5 5.5 0 1 1 11 0 M8 12l2.6-3.4 M4.6 12h6.8",
  iterations: "M2.5 2.5v11h11 M4.5 10.5l2.4-2 2 1 2.6-4 M11.5 5.5h.01 M4.5 5.5h.01 M8 4.5h.01",
  sequences: "M2.5 4h3v3h-3z M6.5 4h3v3h-3z M2.5 9h3v3h-3z M6.5 9h3v3h-3z M11.5 5.5h2 M11.5 10.5h2",
  serving: "M2.5 3h11v7h-6l-3 3v-3h-2z M5 6.5h.01 M8 6.5h.01 M11 6.5h.01",
  steps: "M2.5 13.5h3v-4h4v-3.5h4",
  gpu_breakdown: "M8 2.5a5.5 5.5 0 1 0 5.5 5.5H8z M10.5 2.5a5.5 5.5 0 0 1 3 3h-3z",
  critical_path: "M2.5 4h4 M6.5 4l3 8 M9.5 12h4 M2.5 12h2 M11.5 4h2",
  operators: "M2.5 2.5h4v4h-4z M9.5 2.5h4v4h-4z M2.5 9.5h4v4h-4z M11.5 9.5v4 M9.5 11.5h4",
  kernels: "M4.5 4.5h7v7h-7z M6.5 2v2.5 M9.5 2v2.5 M6.5 11.5V14 M9.5 11.5V14 M2 6.5h2.5 M2 9.5h2.5 M11.5 6.5H14 M11.5 9.5H14",
  modules: "M2.5 2.5h4v3h-4z M9.5 6.5h4v3h-4z M9.5 11h4v3h-4z M4.5 5.5v7h5 M4.5 8h5",
  phases: "M2.5 3.5h11 M2.5 8h4 M9 8h4.5 M2.5 12.5h7 M12 12.5h1.5",
  roofline: "M2.5 2.5v11h11 M4.5 11l4-5.5h5 M10.8 9.5h.01",
  findings: "M3 4.5l1 1 1.8-2 M3 9l1 1 1.8-2 M3 13.3l1 1 1.8-2 M8.5 4.5h5 M8.5 9h5 M8.5 13.3h5",
  whatif: "M2.5 12.5h4l3-4.5 M6.5 12.5l7 0 M9.5 8l4-4.5 M10.5 3.5h3v3",
  memcpy: "M2.5 5.5h10 M10 3l2.5 2.5L10 8 M13.5 10.5h-10 M6 8l-2.5 2.5L6 13",
  compare: "M5.5 3v10 M2.5 6l3-3 3 3 M10.5 13V3 M7.5 10l3 3 3-3",
  memory: "M2.5 12.5l3-6 3 3 2.5-6 2.5 3 M2.5 13.5h11",
  ranks: "M2.5 3.5h6 M2.5 8h11 M2.5 12.5h6 M11 3.5h.01 M11 12.5h.01",
  memory_plan: "M2.5 4.5H7 M10.5 4.5h3 M8.75 2.75v3.5 M2.5 11.5h2.5 M8.5 11.5h5 M6.75 9.75v3.5",
  scaling: "M3.5 13.5v-4 M8 13.5V6 M12.5 13.5v-11 M2 13.5h12",
  scaling_cluster: "M2.5 2.5h11v4h-11z M2.5 9.5h11v4h-11z M5 4.5h.01 M5 11.5h.01",
  health: "M1.5 8h3l2-4.5 3 9 2-4.5h3",
  help: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z M6.3 6.3a1.8 1.8 0 1 1 2.5 1.7c-.5.2-.8.6-.8 1.2 M8 11.3h.01",
  page: "M4 2.5h5l3 3v8H4z M9 2.5v3h3",
  link: "M6.5 9.5l3-3 M7 4.6l1.4-1.4a2.9 2.9 0 0 1 4.4 4.1L11.4 8.9 M9 11.4l-1.4 1.4a2.9 2.9 0 0 1-4.4-4.1L4.6 7.1",
  download: "M8 2.5v7.5 M5 7.2l3 3 3-3 M2.5 13.5h11",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z M8 1.5V3 M8 13v1.5 M1.5 8H3 M13 8h1.5 M3.4 3.4l1 1 M11.6 11.6l1 1 M12.6 3.4l-1 1 M4.4 11.6l-1 1",
  down: "M5 6.5l3 3 3-3",
  up: "M5 9.5l3-3 3 3",
  right: "M6.5 5l3 3-3 3",
  left: "M9.5 5l-3 3 3 3",
  plus: "M8 3.5v9 M3.5 8h9",
  minus: "M3.5 8h9",
  close: "M4.5 4.5l7 7 M11.5 4.5l-7 7",
  search: "M10.8 7a3.8 3.8 0 1 1-7.6 0 3.8 3.8 0 0 1 7.6 0z M9.8 9.8l3.7 3.7",
  columns: "M2.5 3.5h11v9h-11z M6.2 3.5v9 M9.8 3.5v9",
  warn: "M8 2.5l6 10.8H2z M8 6.5v3.2 M8 11.5h.01",
  info: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z M8 7.3v3.7 M8 5.1h.01",
  error: "M4 4l8 8 M12 4l-8 8",
  menu: "M2.5 4.5h11 M2.5 8h11 M2.5 11.5h11",
  check: "M3.5 8.5l3 3 6-7",
  file: "M4 2h5l3 3v9H4z M9 2v3h3",
  folder: "M2 4h4.5l1.5 1.5h6V13H2z",
  again: "M3 8a5 5 0 1 0 1.5-3.6 M4.5 2v2.6h2.6",
  area: "M2.5 5V2.5H5 M8 2.5h1 M11 2.5h2.5V5 M13.5 8v1 M13.5 11v2.5H11 M9 13.5H8 M5 13.5H2.5V11 M2.5 9V8",
  filter: "M2.5 3.5h11 M4.5 8h7 M6.5 12.5h3",
  timeline: "M2.5 4h5 M5.5 8h6 M9 12h4.5 M2.5 12h3",
  timeline_selection: "M2.5 4h5 M5.5 8h6 M9 12h4.5 M2.5 12h3",
  pin: "M6 2.5h4 M6.8 2.5v4L5 9h6L9.2 6.5v-4 M8 9v4.5",
  unpin: "M6 2.5h4 M6.8 2.5v4L5 9h6L9.2 6.5v-4 M8 9v4.5 M2.5 13.5l11-11",
  table: "M2.5 3.5h11v9h-11z M2.5 6.5h11 M2.5 9.5h11",
  image: "M2.5 3h11v10h-11z M2.5 11l3.2-3.2 2.3 2.3 2-2 3.5 3.4 M10.5 6h.01",
};

export function Icon({ name, size = 16 }: { name: string; size?: number }): JSX.Element {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name] ?? PATHS["page"]} />
    </svg>
  );
}

export function Logo(): JSX.Element {
  return (
    <svg width="24" height="24" viewBox="0 0 24 24" aria-hidden="true">
      <rect width="24" height="24" rx="6" fill="var(--accent)" />
      <path d="M5 17 L11 8.5 H19.5" fill="none" stroke="var(--on-accent)" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />
      <circle cx="14" cy="13" r="1.7" fill="var(--on-accent)" />
    </svg>
  );
}

const SHAPES: Record<string, string> = {
  circle: "M8 3.6a4.4 4.4 0 1 0 0 8.8 4.4 4.4 0 0 0 0-8.8z",
  diamond: "M8 2.6L13.4 8 8 13.4 2.6 8z",
  square: "M4 4h8v8H4z",
  "triangle-up": "M8 3l5.4 9.6H2.6z",
  "triangle-down": "M8 13L2.6 3.4h10.8z",
  cross: "M6.2 2.8h3.6v3.4h3.4v3.6H9.8v3.4H6.2V9.8H2.8V6.2h3.4z",
  x: "M4.2 2.6L8 6.4l3.8-3.8 1.6 1.6L9.6 8l3.8 3.8-1.6 1.6L8 9.6l-3.8 3.8-1.6-1.6L6.4 8 2.6 4.2z",
  bar: "M2.5 6.2h11v3.6h-11z",
};

/** The shape that a kind or a direction has in charts, so that color is never alone. */
export function Mark({ shape, color }: { shape: string; color: string }): JSX.Element {
  return (
    <svg class="mark" width="10" height="10" viewBox="0 0 16 16" aria-hidden="true">
      <path d={SHAPES[shape] ?? SHAPES["circle"]} fill={color} />
    </svg>
  );
}
