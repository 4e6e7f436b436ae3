// A card below its button: closes on Esc, on a click elsewhere, and when focus leaves it.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface PopoverProps {
  button: ComponentChildren;
  class?: string;
  label: string;
  tip?: string;
  align?: "left" | "right";
  disabled?: boolean;
  wide?: boolean;
  /** placed by the window, for a button inside something that scrolls */
  fixed?: boolean;
  children: (close: () => void) => ComponentChildren;
}

export function Popover({ button, class: cls, label, tip, align = "left", disabled, wide, fixed, children }: PopoverProps): JSX.Element {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const trigger = useRef<HTMLButtonElement>(null);
  const card = useRef<HTMLDivElement>(null);
  const close = (): void => {
    setOpen(false);
    trigger.current?.focus();
  };
  useEffect(() => {
    if (!open) return;
    const away = (event: Event): void => { if (!root.current?.contains(event.target as Node)) setOpen(false); };
    document.addEventListener("mousedown", away);
    document.addEventListener("focusin", away);
    const moved = (event: Event): void => { if (fixed && !card.current?.contains(event.target as Node)) setOpen(false); };
    document.addEventListener("scroll", moved, { capture: true, passive: true });
    return () => {
      document.removeEventListener("mousedown", away);
      document.removeEventListener("focusin", away);
      document.removeEventListener("scroll", moved, { capture: true });
    };
  }, [open]);
  useLayoutEffect(() => {
    const el = card.current;
    if (!open || !el) return;
    if (fixed) {
      const at = trigger.current!.getBoundingClientRect();
      const below = at.bottom + 4 + el.offsetHeight <= window.innerHeight - 8 || at.top < el.offsetHeight + 12;
      const left = Math.max(8, Math.min(at.left, window.innerWidth - el.offsetWidth - 8));
      Object.assign(el.style, { position: "fixed", right: "auto", left: `${left}px`, top: `${below ? at.bottom + 4 : at.top - el.offsetHeight - 4}px` });
    }
    const box = el.getBoundingClientRect();
    if (!fixed && box.right > window.innerWidth - 8) el.style.transform = `translateX(${window.innerWidth - 8 - box.right}px)`;
    else if (!fixed && box.left < 8) el.style.transform = `translateX(${8 - box.left}px)`;
    el.style.maxHeight = `${Math.max(160, window.innerHeight - box.top - 16)}px`;
    (el.querySelector<HTMLElement>("[data-first]") ?? el.querySelector<HTMLElement>("input,button,a,[tabindex='0']"))?.focus();
  }, [open]);
  return (
    <div class="popover" ref={root} onKeyDown={(e) => { if (open && e.key === "Escape") { e.stopPropagation(); close(); } }}>
      <button ref={trigger} type="button" class={cls} aria-haspopup="dialog" aria-expanded={open} aria-label={label} data-tip={open ? undefined : tip} disabled={disabled} onClick={() => setOpen(!open)}>
        {button}
      </button>
      {open && <div ref={card} class={`float ${align} ${wide ? "wide" : ""}`} role="dialog" aria-label={label}>{children(close)}</div>}
    </div>
  );
}
