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
  children: (close: () => void) => ComponentChildren;
}

export function Popover({ button, class: cls, label, tip, align = "left", disabled, wide, children }: PopoverProps): JSX.Element {
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
    return () => {
      document.removeEventListener("mousedown", away);
      document.removeEventListener("focusin", away);
    };
  }, [open]);
  useLayoutEffect(() => {
    const el = card.current;
    if (!open || !el) return;
    const box = el.getBoundingClientRect();
    if (box.right > window.innerWidth - 8) el.style.transform = `translateX(${window.innerWidth - 8 - box.right}px)`;
    else if (box.left < 8) el.style.transform = `translateX(${8 - box.left}px)`;
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
