// What dragging in a figure does, for the time of the visit: linked figures select rows, until the reader wants to zoom.
import { signal } from "@preact/signals";

export type Drag = "zoom" | "select";

const chosen = signal<Record<string, Drag>>({});

export const dragOf = (id: string): Drag => chosen.value[id] ?? "select";
export const setDrag = (id: string, drag: Drag): void => { chosen.value = { ...chosen.value, [id]: drag }; };
