// The link of this view in other forms: Markdown with the headline, command, Python, pictures of its figures; in a saved page the live one.
import type { JSX } from "preact";
import { inFile, liveAddress } from "../api/file";
import type { FigureSection } from "../api/types";
import { saveFigure } from "../sections/figure/figure";
import { report } from "../state/data";
import { readHash, writeHash } from "../state/hash";
import { encode } from "../state/codec";
import { here, view } from "../state/view";
import { commandOf, markdownOf, pythonOf } from "../state/ways";
import { copyText } from "../ui/copy";
import { Icon } from "../ui/icons";
import { Popover } from "../ui/popover";

/** This view in the live page that a file was saved from: names of run and worker are those of its own address, a file may leave them out. */
function liveHere(): string {
  const [base = "", hash = ""] = liveAddress().split("#", 2);
  const { run = "", worker = "", span = "" } = readHash(hash);
  return base + writeHash("", encode({ ...view.value, run, worker, span }));
}

const address = (): string => (inFile ? liveHere() : here());

export function LinkForms(): JSX.Element {
  const r = report.value.value;
  const ready = r?.available ? r : null;
  const linked = !inFile || liveAddress() !== "";
  const figures = (ready?.sections.filter((s) => s.kind === "figure" && s.title) ?? []) as FigureSection[];
  const forms: [label: string, note: string, text: () => string][] = [
    ["Copy as Markdown link", "with the headline", () => markdownOf(ready!.title, ready!.headline ?? "", address())],
    ["Copy as command", "tb-sol analyze", () => commandOf(view.peek())],
    ["Copy as line of Python", "for a notebook", () => pythonOf(view.peek())],
  ];
  return (
    <Popover label="Link in other forms" tip="Markdown, command, Python, pictures" class="ghost" align="right" button={<Icon name="down" />}>
      {(close) => (
        <div class="list">
          {forms.slice(linked && ready ? 0 : 1).map(([label, note, text]) => (
            <button type="button" class="option" onClick={() => { void copyText(text(), "the text"); close(); }}>{label}<span class="note">{note}</span></button>
          ))}
          {figures.flatMap((s) => (["png", "svg"] as const).map((format) => (
            <button type="button" class="option" onClick={() => { void saveFigure(s, format, s.title); close(); }}>{s.title}<span class="note">{format.toUpperCase()}</span></button>
          )))}
        </div>
      )}
    </Popover>
  );
}

/** In a saved page the way to the live one, where it is known. */
export function LiveLink(): JSX.Element | null {
  if (!inFile || !liveAddress()) return null;
  return <a class="button" href={liveHere()} target="_blank" rel="noopener noreferrer" data-tip="This view in the live page, which needs its server"><Icon name="link" /><span class="word stays">Live page</span></a>;
}
