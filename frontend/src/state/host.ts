// The only file that touches the parent frame. Inside TensorBoard the page is a same-origin frame whose parent holds the address,
// the theme and the reload button; outside (tb-sol serve, or the frame opened directly) the page's own window does.
import { activeTab, PLUGIN, readHash, writeHash } from "./hash";
import type { Pairs } from "./codec";
import { alone, inFile, startPairs } from "../api/file";

const parentWindow = (): Window => {
  if (inFile) return window; // a notebook shows a saved page in a frame
  try {
    if (window.parent !== window && window.parent.location.hash !== undefined && window.parent.document.body) return window.parent;
  } catch {
    return window; // framed by another origin: only the address of this frame can be used
  }
  return window;
};

const host = parentWindow();

/** True inside TensorBoard's frame. */
export const hosted = host !== window;

/** Is our tab the active one? Outside TensorBoard always. An address without a tab counts as ours: the first visit. */
export const active = (): boolean => !hosted || ["", PLUGIN].includes(activeTab(host.location.hash));

export function readAddress(): Pairs {
  const found = readHash(host.location.hash);
  return Object.keys(found).length ? found : startPairs();
}

/** The full address that shows these pairs, for links and for copying. */
export const addressOf = (pairs: Pairs): string => {
  const { href, hash } = host.location;
  return href.slice(0, href.length - hash.length) + writeHash(hash, pairs);
};

let written = "";

/** Writes our pairs. push adds a history entry; else the entry is replaced. False while another tab is active: the address is not ours then. */
export function writeAddress(pairs: Pairs, push: boolean): boolean {
  if (hosted && activeTab(host.location.hash) !== PLUGIN) return false;
  const hash = writeHash(host.location.hash, pairs);
  written = hash;
  if (hash === host.location.hash) return true;
  if (host.location.protocol === "about:") return true; // a frame without an address of its own
  if (push) host.location.hash = hash;
  else host.history.replaceState(host.history.state, "", hash);
  return true;
}

/** Calls back when someone else changed the address while our tab is active, and when our tab becomes active. */
export function onAddress(callback: (pairs: Pairs) => void): void {
  const listen = (): void => {
    if (!active() || host.location.hash === written) return;
    written = host.location.hash;
    callback(readAddress());
  };
  host.addEventListener("hashchange", listen);
  window.addEventListener("pagehide", () => host.removeEventListener("hashchange", listen), { once: true });
}

/** Calls back with whether the page is visible: our tab active, the window not in the background. */
export function onVisible(callback: (visible: boolean) => void): void {
  const tell = (): void => callback(active() && document.visibilityState === "visible");
  host.addEventListener("hashchange", tell);
  document.addEventListener("visibilitychange", tell);
  window.addEventListener("pagehide", () => host.removeEventListener("hashchange", tell), { once: true });
  tell();
}

/** px that a frame may grow to. */
const TALLEST = 20_000;

/** Makes the frame of a notebook's cell as high as what it shows, where the notebook lets the page reach it. */
export function fitFrame(shown: HTMLElement): void {
  if (!alone) return;
  try {
    const frame = window.frameElement as HTMLElement | null;
    if (!frame) return;
    const fit = (): void => { frame.style.height = `${Math.min(Math.ceil(shown.getBoundingClientRect().height), TALLEST)}px`; };
    new ResizeObserver(fit).observe(shown);
  } catch {
    return; // of another origin: the frame scrolls
  }
}

/** Whether an element takes text: keys pressed in it are not ours. */
export const typing = (target: EventTarget | null): boolean => {
  const el = target as HTMLElement | null;
  return !!el && (el.isContentEditable === true || ["INPUT", "TEXTAREA", "SELECT"].includes(el.tagName));
};

/** ms in which a letter after `g` opens a page. */
const LETTER_WITHIN = 1500;
let awaited = 0;

/** Says that the next letter opens a page, or that it has come. */
export const awaitLetter = (on: boolean): void => { awaited = on ? performance.now() + LETTER_WITHIN : 0; };
/** Whether the next letter opens a page: no part of the page takes it. */
export const letterAwaited = (): boolean => performance.now() < awaited;

/** Takes the keyboard from TensorBoard's document: while nobody types there, when our tab is shown; and on a press inside, which charts keep from moving it. */
export function takeKeys(): void {
  if (!hosted) return;
  onVisible((visible) => {
    let at = host.document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    if (visible && !typing(at)) window.focus();
  });
  document.addEventListener("pointerdown", () => { if (!document.hasFocus()) window.focus(); }, { capture: true });
}

/** The host's theme, now and on every change: TensorBoard's body class, else the browser's preference. */
export function onDark(callback: (dark: boolean) => void): void {
  if (hosted) {
    const body = host.document.body;
    const tell = (): void => callback(body.classList.contains("dark-mode"));
    const watcher = new MutationObserver(tell);
    watcher.observe(body, { attributes: true, attributeFilter: ["class"] });
    window.addEventListener("pagehide", () => watcher.disconnect(), { once: true });
    tell();
    return;
  }
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", () => callback(query.matches));
  callback(query.matches);
}

interface HostMessage {
  type: string;
  id: number;
  isReply?: boolean;
}

/** TensorBoard's reload button and timer. Every pushed message is answered, as the host waits for it. */
export function onReload(callback: () => Promise<void>): void {
  if (inFile || window.parent === window) return;
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }: MessageEvent<string>) => {
    const { type, id, isReply } = JSON.parse(data) as HostMessage;
    if (isReply) return;
    const reply = (): void => port1.postMessage(JSON.stringify({ type, id, payload: null, error: null, isReply: true }));
    if (type === "experimental.DataReloaded") void callback().finally(reply);
    else reply();
  };
  window.parent.postMessage("experimental.bootstrap", "*", [port2]);
}
