// Text of a report: two marks, everything else escaped by the DOM. And names cut in the middle.
import type { JSX } from "preact";
import { pieces } from "../markup";

export function Text({ text }: { text: string }): JSX.Element {
  return (
    <>
      {pieces(text).map((p) => (p.kind === "bold" ? <strong>{p.text}</strong> : p.kind === "code" ? <code>{p.text}</code> : p.text))}
    </>
  );
}

/** Letters at the end of a name that stay. */
const TAIL = 12;
/** Letters from which on a part that stays is cut in its own middle where there is no room, and those that stay at its end. */
const LONG_PART = 20;
const PART_TAIL = 8;

/**
 * A long name cut in its middle by the room it has; the whole of it on hover (unless `tip` is empty) and for copying. part: what of it tells it from
 * other names, [from, to): that stays, and what stands around it is cut. tail: letters at the end that stay, of a name twice as long.
 */
export function Middle({ text, tip = text, part, tail = TAIL }: { text: string; tip?: string; part?: [number, number] | undefined; tail?: number }): JSX.Element {
  if (part && text.length > tail * 2 && part[0] > 0) {
    return (
      <span class="mid kept" data-tip={tip || undefined}>
        <span>{text.slice(0, part[0])}</span>
        <span class="mid-kept">{part[1] - part[0] > LONG_PART ? <><span>{text.slice(part[0], part[1] - PART_TAIL)}</span><span>{text.slice(part[1] - PART_TAIL, part[1])}</span></> : text.slice(...part)}</span>
        <span>{text.slice(part[1])}</span>
      </span>
    );
  }
  if (text.length <= tail * 2) return <span class="mid" data-tip={tip || undefined}><span>{text}</span></span>;
  return (
    <span class="mid" data-tip={tip || undefined}>
      <span class="mid-a">{text.slice(0, -tail)}</span>
      <span class="mid-b">{text.slice(-tail)}</span>
    </span>
  );
}
