// A list to choose from, with a search field when it is long. Arrow keys move, Enter chooses.
import type { ComponentChildren, JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { Icon } from "./icons";
import { Middle } from "./text";

export interface Option {
  value: string;
  text: string;
  note?: string;
  /** a second line */
  detail?: string;
  disabled?: boolean;
}

interface ListProps {
  options: Option[];
  value: string;
  label: string;
  onPick: (value: string, event: { shift: boolean }) => void;
  marked?: (value: string) => boolean;
  head?: ComponentChildren;
  foot?: ComponentChildren;
  /** any text may be chosen, not only what is listed: what the search field asks for, and who takes it */
  free?: { ask: string; take: (text: string) => void };
}

const SEARCH_FROM = 8;
const MOST = 400;

export function List({ options, value, label, onPick, marked, head, foot, free }: ListProps): JSX.Element {
  const [text, setText] = useState("");
  const list = useRef<HTMLDivElement>(null);
  const found = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return options.filter((o) => words.every((w) => `${o.text} ${o.note ?? ""} ${o.detail ?? ""}`.toLowerCase().includes(w)));
  }, [options, text]);
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const items = [...(list.current?.querySelectorAll<HTMLElement>("button.option") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    items[at < 0 ? (step > 0 ? 0 : items.length - 1) : (at + step + items.length) % items.length]?.focus();
  };
  const long = options.length >= SEARCH_FROM || !!free;
  const typed = text.trim();
  const ask = free?.ask ?? `Search ${label.toLowerCase()}`;
  const enter = (): void => {
    const exact = options.find((o) => o.value === typed) ?? found[0];
    if (exact && (typed || !free)) onPick(exact.value, { shift: false });
    else if (free && typed) free.take(typed);
  };
  return (
    <div class="list" onKeyDown={move}>
      {long && (
        <label class="search">
          <Icon name="search" size={14} />
          <input
            data-first type="text" placeholder={ask} aria-label={ask} value={text} onInput={(e) => setText(e.currentTarget.value)}
            onKeyDown={(e) => { if (e.key === "Enter") enter(); }}
          />
        </label>
      )}
      {head}
      <div class="options" ref={list} role="listbox" aria-label={label}>
        {found.slice(0, MOST).map((o) => {
          const on = marked ? marked(o.value) : o.value === value;
          return (
            <button type="button" class={`option ${on ? "on" : ""}`} role="option" aria-selected={on} disabled={o.disabled} data-first={!long && on ? true : undefined} onClick={(e) => onPick(o.value, { shift: e.shiftKey })}>
              <Middle text={o.text} />
              {o.note && <span class="note">{o.note}</span>}
              {o.detail && <span class="detail">{o.detail}</span>}
            </button>
          );
        })}
        {free && typed && !options.some((o) => o.value === typed) && <button type="button" class="option" role="option" aria-selected={false} onClick={() => free.take(typed)}>Use “{typed}”</button>}
        {!found.length && !free && <div class="none">Nothing matches “{text}”.</div>}
        {found.length > MOST && <div class="none">{found.length - MOST} more; type to narrow.</div>}
      </div>
      {foot}
    </div>
  );
}
