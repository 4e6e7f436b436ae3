import { describe, expect, test } from "vitest";
import type { TimelineModel } from "../../src/sections/timeline/model";

const page: Record<string, unknown> = { location: { hash: "" } };
Object.assign(globalThis, { window: Object.assign(page, { parent: page }), document: { activeElement: null, getElementById: () => null, querySelector: () => null } });
const { onKey } = await import("../../src/sections/timeline/keys");
const { awaitLetter } = await import("../../src/state/host");

/** What was called, of a timeline without any event. */
const done: string[] = [];
const note = (name: string) => (...rest: unknown[]): void => void done.push([name, ...rest].join(" "));
const held = <T>(value: T): { value: T; peek: () => T } => ({ value, peek: () => value });
const model = {
  zoom: note("zoom"), pan: note("pan"), fit: note("fit"), mark: note("mark"), nextMark: note("next mark"), chooseView: note("view"), chooseEvent: note("event"), measure: note("measure"), flow: note("flow"), first: note("first"), history: note("history"),
  hover: held(null), detail: held(null), window: held({ start: 0, end: 10 }), pointer: 4, paneOpen: held(true), selection: () => null,
} as unknown as TimelineModel;
const to = { search: note("search"), findTrack: note("find"), help: note("help"), table: note("table") };

/** Presses a key while an element has the focus. inside: what that element stands in, "" a part of the timeline without keys of its own. */
function press(code: string, key: string, more: Partial<KeyboardEvent> = {}, inside = "", tagName = "DIV"): string {
  done.length = 0;
  const target = { tagName, closest: (selector: string) => (inside && selector.split(",").includes(inside) ? {} : null) };
  const taken = onKey({ code, key, target, ...more } as unknown as KeyboardEvent, model, to);
  expect(taken || !done.length).toBe(true);
  return taken ? done.join() : "-";
}

describe("keys of the timeline", () => {
  test("GIVEN other layouts WHEN pressed THEN W A S D stand where they do on a US keyboard, other letters are what the key writes", () => {
    expect([press("KeyW", "z"), press("KeyA", "q"), press("KeyS", "s"), press("KeyD", "d")]).toEqual(["zoom 0.7", "pan -0.15", `zoom ${1 / 0.7}`, "pan 0.15"]);
    expect([press("Semicolon", "m"), press("KeyZ", "w"), press("KeyF", "ф"), press("KeyF", "f")]).toEqual(["mark 4", "-", "fit", "fit"]); // French, French, Russian, US
    expect([press("KeyQ", "a", { ctrlKey: true }), press("KeyA", "q", { ctrlKey: true })]).toEqual(["view", "-"]);
    expect([press("Digit8", "[", { ctrlKey: true, altKey: true }), press("Digit5", "[", { altKey: true }), press("BracketRight", "]")]).toEqual(["flow -1", "flow -1", "flow 1"]);
  });

  test("GIVEN a field, a button, a table or a page that has handled it WHEN pressed THEN the key is theirs", () => {
    expect([press("KeyW", "w", {}, "", "INPUT"), press("KeyW", "w", {}, "", "SELECT"), press("KeyW", "w", { defaultPrevented: true })]).toEqual(["-", "-", "-"]);
    expect([press("Enter", "Enter", {}, "button"), press("Enter", "Enter", {}, "a"), press("Enter", "Enter")]).toEqual(["-", "-", "first"]);
    expect([press("ArrowDown", "ArrowDown", {}, ".tl-table-scroll"), press("ArrowLeft", "ArrowLeft", {}, ".tl-area"), press("ArrowDown", "ArrowDown")]).toEqual(["-", "-", "first"]);
    awaitLetter(true); // after g a letter opens a page
    expect([press("KeyK", "k"), press("KeyM", "m")]).toEqual(["-", "-"]);
    awaitLetter(false);
    expect(press("KeyM", "m")).toBe("mark 4");
    expect([press("KeyF", "f", {}, "button"), press("KeyS", "s", { ctrlKey: true }), press("KeyR", "r", { metaKey: true })]).toEqual(["fit", "-", "-"]);
  });
});
