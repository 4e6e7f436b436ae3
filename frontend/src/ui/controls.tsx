// Small controls: segmented switch, toggle chip, number field, notice, gray blocks.
import type { ComponentChildren, JSX } from "preact";
import type { Notice as NoticeData } from "../api/types";
import { linkView } from "../state/view";
import { Icon } from "./icons";
import { ViewLink } from "./link";
import { Text } from "./text";

interface SwitchProps {
  label: string;
  tip?: string;
  value: string;
  choices: { value: string; text: string }[];
  onPick: (value: string) => void;
}

/** One of a few: a row of joined buttons, arrow keys move. */
export function Switch({ label, tip, value, choices, onPick }: SwitchProps): JSX.Element {
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = choices.findIndex((c) => c.value === value);
    const next = choices[(at + step + choices.length) % choices.length]!;
    onPick(next.value);
    const group = event.currentTarget as HTMLElement;
    group.querySelectorAll<HTMLElement>("button")[choices.indexOf(next)]?.focus();
  };
  return (
    <div class="switch" role="radiogroup" aria-label={label} data-tip={tip} onKeyDown={move}>
      {choices.map((c) => (
        <button type="button" role="radio" aria-checked={c.value === value} tabIndex={c.value === value ? 0 : -1} class={c.value === value ? "on" : ""} onClick={() => onPick(c.value)}>
          {c.text}
        </button>
      ))}
    </div>
  );
}

interface ChipProps {
  on: boolean;
  onToggle: () => void;
  count?: number;
  mark?: ComponentChildren;
  tip?: string;
  /** begins another group */
  apart?: boolean;
  children: ComponentChildren;
}

export function Chip({ on, onToggle, count, mark, tip, apart, children }: ChipProps): JSX.Element {
  return (
    <button type="button" class={`chip ${on ? "on" : ""} ${apart ? "apart" : ""}`} aria-pressed={on} data-tip={tip} onClick={onToggle}>
      {mark}
      <span>{children}</span>
      {count !== undefined && <span class="chip-count">{count}</span>}
      {on && <Icon name="close" size={11} />}
    </button>
  );
}

/** On or off. */
export function Toggle({ label, on, onToggle }: { label: string; on: boolean; onToggle: () => void }): JSX.Element {
  return <button type="button" role="switch" aria-checked={on} aria-label={label} class="toggle" onClick={onToggle}><span /></button>;
}

const GLYPH = { info: "info", warn: "warn", error: "error" } as const;

export function Notice({ notice, children }: { notice: NoticeData; children?: ComponentChildren }): JSX.Element {
  const level = notice.level ?? "warn";
  return (
    <div class={`notice ${level}`} role={level === "error" ? "alert" : "status"}>
      <Icon name={GLYPH[level]} />
      <span class="notice-text"><Text text={notice.text} /></span>
      {notice.link && <ViewLink view={linkView(notice.link)} class="link"><Text text={notice.link.label || "More"} /></ViewLink>}
      {children}
    </div>
  );
}

export const Block = ({ w, h }: { w: string; h: number }): JSX.Element => <div class="block" style={{ width: w, height: `${h}px` }} />;

/** The shape of a page to come. */
export function Skeleton(): JSX.Element {
  return (
    <div class="grid" aria-hidden="true">
      <div class="card span-12 bones row"><Block w="150px" h={48} /><div class="bones grow"><Block w="60%" h={12} /><Block w="80%" h={12} /></div><Block w="90px" h={36} /><Block w="90px" h={36} /></div>
      <div class="card span-7 bones"><Block w="34%" h={14} /><Block w="92%" h={20} /><Block w="55%" h={20} /><Block w="29%" h={20} /><Block w="45%" h={20} /></div>
      <div class="card span-5 bones"><Block w="32%" h={14} /><Block w="90%" h={14} /><Block w="70%" h={12} /><Block w="90%" h={14} /><Block w="60%" h={12} /></div>
      <div class="card span-12 bones"><Block w="22%" h={14} />{Array.from({ length: 6 }, (_, i) => <Block w={`${96 - i * 3}%`} h={14} />)}</div>
    </div>
  );
}
