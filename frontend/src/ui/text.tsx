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

const TAIL = 12;

/**
 * A long name cut in its middle by the room it has; the whole of it on hover and for copying. part: what of it tells it from
 * other names, [from, to): that stays, and what stands around it is cut.
 */
export function Middle({ text, tip = text, part }: { text: string; tip?: string; part?: [number, number] | undefined }): JSX.Element {
  if (part && text.length > TAIL * 2 && part[0] > 0) {
    return (
      <span class="mid kept" data-tip={tip}>
        <span>{text.slice(0, part[0])}</span>
        <span class="mid-kept">{text.slice(...part)}</span>
        <span>{text.slice(part[1])}</span>
      </span>
    );
  }
  if (text.length <= TAIL * 2) return <span class="mid" data-tip={tip}><span>{text}</span></span>;
  return (
    <span class="mid" data-tip={tip}>
      <span class="mid-a">{text.slice(0, -TAIL)}</span>
      <span class="mid-b">{text.slice(-TAIL)}</span>
    </span>
  );
}
