// The second source of answers: a page that was saved as one HTML file holds them itself, and asks nobody.
import type { ErrorBody } from "./types";
import { savedTiles, type TilePart, tileParts } from "./tiles";

/** What a saved page holds. answers: bodies by the address they would come from, without recording and empty values, sorted. */
interface Saved {
  answers: Record<string, unknown>;
  /** address of the live page, "" where it is not known */
  live: string;
}

const block = typeof document === "undefined" ? null : document.getElementById("tb-sol-data");

/** Whether this page was saved as a file: nothing can be asked that is not in it. */
export const inFile = block !== null;
/** Whether it shows one report alone, as a cell of a notebook does. */
export const alone = block?.dataset["alone"] === "true";
/** Code of the error of what a saved page does not hold. */
export const NOT_IN_FILE = "not_in_file";
/** Why a control does nothing in a saved page. */
export const LIVE = "in the live page";

/** What the page shows first: pairs of the address. */
export const startPairs = (): Record<string, string> => JSON.parse(block?.dataset["start"] ?? "{}") as Record<string, string>;

let saved: Saved = { answers: {}, live: "" };
let tiles: ReadonlyMap<string, TilePart> = new Map();

/** The answer in which a script element holds what is gzip, in base64. */
function unpacked(element: Element): Response {
  const packed = Uint8Array.from(atob(element.textContent!.trim()), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
}

/** Unpacks what the page holds. Called once, before anything is asked. */
export async function openFile(): Promise<void> {
  if (!block) return;
  saved = JSON.parse(await unpacked(block).text()) as Saved;
  tiles = tileParts(await unpacked(document.getElementById("tb-sol-tiles")!).arrayBuffer());
}

/** Address of the live page that a saved one came from, "" where it is not known. */
export const liveAddress = (): string => saved.live;

/** The tiles of an address, as the server sends them: those that the file has. */
export function tilesIn(url: string): ArrayBuffer {
  const query = new URLSearchParams(url.slice(url.indexOf("?")));
  const [from, to] = query.get("i")!.split("-").map(Number);
  return savedTiles(tiles, Number(query.get("z")), from!, to ?? from!, query.get("tracks")!.split(",").map(Number));
}

const WHERE = new Set(["run", "worker", "span", "capture", "tables", "wait"]);

/** The name under which a saved page holds the answer of an address. */
export function nameOf(url: string): string {
  const [path, query = ""] = url.split("?", 2);
  const pairs = query.split("&").filter(Boolean).map((part) => part.split("=", 2).map(decodeURIComponent) as [string, string]);
  const kept = pairs.filter(([name, value]) => value && !WHERE.has(name)).map(([name, value]) => `${name}=${value}`).sort();
  return [decodeURIComponent(path!), ...kept].join("\n");
}

const nameIn = (url: string): string => (alone ? nameOf(url.split("?", 1)[0]!) : nameOf(url));

/** Whether a saved page holds the answer of an address; a live page holds all. */
export const holds = (url: string): boolean => !inFile || Object.hasOwn(saved.answers, nameIn(url));

/** The answer of an address, or why there is none. */
export function savedAnswer(url: string): { value: unknown } | { error: ErrorBody } {
  const name = nameIn(url);
  if (Object.hasOwn(saved.answers, name)) return { value: saved.answers[name] };
  const hint = saved.live ? `Open it in the live page: ${saved.live}` : "Open the recording in the live page: tb-sol serve LOGDIR";
  return { error: { code: NOT_IN_FILE, message: "This view is not in this file.", hint } };
}
