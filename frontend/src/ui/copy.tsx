// Copying: the clipboard where the browser grants it, else the text in a field that is selected already.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./icons";

const field = signal<{ text: string; what: string } | null>(null);

export const copyOpen = (): boolean => field.peek() !== null;
export const closeCopy = (): void => { field.value = null; };

/** True if the clipboard took it; else the field is open. */
export async function copyText(text: string, what: string): Promise<boolean> {
  try {
    if (!navigator.clipboard) throw new DOMException("no clipboard on this page", "NotAllowedError");
    await navigator.clipboard.writeText(text);
    return true;
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    field.value = { text, what };
    return false;
  }
}

interface CopyProps {
  text: () => string;
  what: string;
  class?: string;
  label?: string;
  children: ComponentChildren;
}

/** A button that answers "Copied" in its place for 1.5 s. */
export function Copy({ text, what, class: cls = "button", label, children }: CopyProps): JSX.Element {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = window.setTimeout(() => setDone(false), 1500);
    return () => window.clearTimeout(timer);
  }, [done]);
  return (
    <button type="button" class={cls} aria-label={label} data-tip={label} onClick={() => void copyText(text(), what).then((ok) => setDone(ok))}>
      {done ? <><Icon name="check" /><span role="status">Copied</span></> : children}
    </button>
  );
}

/** The field for where there is no clipboard. */
export function CopyField(): JSX.Element | null {
  const input = useRef<HTMLTextAreaElement>(null);
  const now = field.value;
  useLayoutEffect(() => {
    input.current?.focus();
    input.current?.select();
  }, [now]);
  if (!now) return null;
  const close = closeCopy;
  return (
    <div class="veil" onClick={(e) => { if (e.target === e.currentTarget) close(); }}>
      <div class="dialog" role="dialog" aria-modal="true" aria-label={`Copy ${now.what}`} onKeyDown={(e) => { if (e.key === "Escape") { e.stopPropagation(); close(); } }}>
        <div class="dialog-head">
          <h2>Copy {now.what}</h2>
          <button type="button" class="ghost" aria-label="Close" onClick={close}><Icon name="close" /></button>
        </div>
        <p class="quiet">The browser does not let this page use the clipboard. The text is selected: press Ctrl+C, or ⌘C.</p>
        <textarea ref={input} class="copy-field" readOnly rows={Math.min(10, Math.max(3, Math.ceil(now.text.length / 70)))} value={now.text} />
      </div>
    </div>
  );
}
