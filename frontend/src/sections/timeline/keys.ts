// Keys of the timeline. They act while it has the focus and nobody types.
import { letterAwaited, typing } from "../../state/host";
import type { TimelineModel } from "./model";

export interface KeyTargets {
  search: () => void;
  findTrack: () => void;
  help: () => void;
  table: () => void;
}

/** What each key does, for the card of keys. */
export const KEYS: [string, string][] = [
  ["W S", "zoom in and out at the pointer"], ["A D", "pan; with Shift a page"], ["F", "zoom to the selection; again: fill the view"], ["0", "everything"], ["Alt+← →", "back and forward in the places you zoomed to"],
  ["Enter", "select what is under the pointer, else the first event in view; in the search, the next hit"], ["C", "measure from the selected event; on another one, the gap between both"], ["R", "the selected event as an area"], ["Ctrl+A", "the view as an area"], [". ,", "next and previous event of the lane"], ["↑ ↓", "parent and first child; in the list of rows, from row to row"],
  ["] [", "follow a link out, in"], ["M", "mark the time under the pointer; Shift+M: next mark"], ["/", "search; N, Shift+N: next and previous hit"], ["T", "find a row"], ["P H E", "pin, hide, open the row of the selection; Shift+E: all rows"],
  ["Q", "details"], ["L", "events as a table"], ["Esc", "leave the search, the selection, the area"], ["?", "this card"],
];

/** The track that a key of rows is about: of the pointer, else of the selection. */
function trackOf(model: TimelineModel) {
  const focused = document.activeElement?.closest(".tl-tree") ? model.trackAt(model.cursor.peek()) : null;
  if (focused) return focused;
  const at = model.hover.peek()?.track.track ?? model.detail.peek()?.track;
  return at === undefined ? null : (model.tracks.peek()[at] ?? null);
}

/** The letter that a key writes; where that is none of the Latin ones, the one at its place of a US keyboard. "" for no letter. */
const written = ({ code, key }: KeyboardEvent): string => (/^[a-z]$/i.test(key) ? key.toUpperCase() : placeOf(code));
const placeOf = (code: string): string => (code.startsWith("Key") ? code.slice(3) : "");

/** The letter of a key: W A S D stand where they do on a US keyboard, the others are what the key writes. */
export function letterOf(event: KeyboardEvent): string {
  const place = placeOf(event.code);
  if (place && "WASD".includes(place)) return place;
  const letter = written(event);
  return "WASD".includes(letter) ? place : letter;
}

/** Keys that what has the focus inside of the timeline needs itself: Enter of a button or a link, the arrows of what scrolls. */
function kept({ target, key }: KeyboardEvent): boolean {
  const el = target as Element | null;
  if (key === "Enter") return !!el?.closest("button,a,summary");
  return key.startsWith("Arrow") && !!el?.closest(".tl-table-scroll,.tl-area,.float");
}

/** Whether a key was one of the timeline's. */
export function onKey(event: KeyboardEvent, model: TimelineModel, to: KeyTargets): boolean {
  if (typing(event.target) || event.defaultPrevented || letterAwaited() || kept(event)) return false;
  const { key } = event;
  const bracket = key === "[" || key === "]"; // on many keyboards with AltGr, which is Ctrl and Alt on some systems
  if (event.altKey && !bracket) {
    if (key === "ArrowLeft") return model.history(-1), true;
    if (key === "ArrowRight") return model.history(1), true;
    return false;
  }
  if ((event.ctrlKey || event.metaKey) && !bracket) {
    if (written(event) !== "A") return false;
    model.chooseView();
    return true;
  }
  const page = event.shiftKey ? 0.9 : 0.15;
  const letter = letterOf(event);
  if ("WASD".includes(letter) && letter) {
    if (letter === "W") model.zoom(0.7);
    else if (letter === "S") model.zoom(1 / 0.7);
    else model.pan(letter === "A" ? -page : page);
    return true;
  }
  switch (key) {
    case "+": case "=": return model.zoom(0.7), true;
    case "-": return model.zoom(1 / 0.7), true;
    case "ArrowLeft": return model.pan(-page), true;
    case "ArrowRight": return model.pan(page), true;
    case "ArrowUp": return model.detail.peek() ? (model.parent(), true) : false;
    case "ArrowDown": return void (model.detail.peek() ? model.child() : model.first()), true;
    case "0": return model.everything(), true;
    case ".": return void model.beside(1), true;
    case ",": return void model.beside(-1), true;
    case "]": return model.flow(1), true;
    case "[": return model.flow(-1), true;
    case "/": return to.search(), true;
    case "?": return to.help(), true;
    case "Enter": {
      const item = model.hover.peek();
      void (item ? model.pick(item) : model.first());
      return true;
    }
    case "Escape": return escape(model);
  }
  switch (letter) {
    case "F": return model.fit(), true;
    case "M": return event.shiftKey ? model.nextMark() : model.mark(model.pointer ?? model.selection()?.start ?? middle(model)), true;
    case "N": return void model.finder.step(event.shiftKey ? -1 : 1), true;
    case "T": return to.findTrack(), true;
    case "Q": return (model.paneOpen.value = !model.paneOpen.peek()), true;
    case "L": return to.table(), true;
    case "R": return model.chooseEvent(), true;
    case "C": return model.measure(), true;
  }
  const track = trackOf(model);
  if (letter === "E" && event.shiftKey) return model.rows.expandAll(), true;
  if (letter === "E") return track && model.rows.toggle(track), true;
  if (letter === "P") return track && model.rows.pin(track), true;
  if (letter === "H") return track && model.rows.hide(track), true;
  return false;
}

const middle = (model: TimelineModel): number => (model.window.peek().start + model.window.peek().end) / 2;

function escape(model: TimelineModel): boolean {
  if (model.compared.peek().length) model.compared.value = [];
  else if (model.finder.state.peek().text) void model.finder.find("", "quiet");
  else if (model.selected.peek()) model.select(null);
  else if (model.area.peek()) model.choose(null);
  else return false;
  return true;
}

