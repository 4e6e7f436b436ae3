// One floating hint for everything that carries `data-tip`: shown on hover and on focus, hidden by Esc.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

const now = signal<{ at: HTMLElement; text: string; box: DOMRect } | null>(null);
let timer = 0;
/** Letters from which on a hint is wider: a long name shows whole, whatever the window. */
const WIDE_FROM = 400;

function owner(target: EventTarget | null): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-tip]") : null;
}

/** Keeps a hint beside what it is of, which moves with the page, and hides it once neither the pointer nor the focus is there. */
function follow(): void {
  const tip = now.value;
  if (!tip) return;
  const text = tip.at.dataset["tip"];
  if (!text || !tip.at.isConnected || !tip.at.matches(":hover, :focus-within")) {
    now.value = null;
    return;
  }
  const box = tip.at.getBoundingClientRect();
  if (text !== tip.text || box.left !== tip.box.left || box.top !== tip.box.top || box.bottom !== tip.box.bottom) now.value = { at: tip.at, text, box };
  window.requestAnimationFrame(follow);
}

export function startTips(): void {
  const show = (event: Event, wait: number): void => {
    const at = owner(event.target);
    window.clearTimeout(timer);
    const text = at?.dataset["tip"];
    if (!at || !text) {
      now.value = null;
      return;
    }
    timer = window.setTimeout(() => {
      if (!at.isConnected) return;
      if (!now.value) window.requestAnimationFrame(follow);
      now.value = { at, text, box: at.getBoundingClientRect() };
    }, wait);
  };
  document.addEventListener("mouseover", (e) => show(e, 280));
  document.addEventListener("focusin", (e) => show(e, 500));
  const hide = (): void => {
    window.clearTimeout(timer);
    now.value = null;
  };
  document.addEventListener("mousedown", hide);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { capture: true, passive: true });
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });
}

export function Tip(): JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  const tip = now.value;
  useLayoutEffect(() => {
    const el = ref.current;
    if (!el || !tip) return;
    el.style.left = "0"; // it is as wide as its text only where the window leaves room to its right
    const { width, height } = el.getBoundingClientRect();
    const below = tip.box.bottom + 6 + height < window.innerHeight;
    el.style.left = `${Math.max(8, Math.min(tip.box.left, window.innerWidth - width - 8))}px`;
    el.style.top = `${below ? tip.box.bottom + 6 : Math.max(4, tip.box.top - height - 6)}px`;
  }, [tip]);
  // a live region: the hint of what has the focus is read, too
  return <div aria-live="polite">{tip && <div class={`tip ${tip.text.length > WIDE_FROM ? "wide" : ""}`} role="tooltip" ref={ref}>{tip.text}</div>}</div>;
}
