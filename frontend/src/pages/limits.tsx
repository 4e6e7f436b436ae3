// Device limits: every figure with its unit and where it comes from, another device, another clock, sparse peaks.
import { useState } from "preact/hooks";
import type { JSX } from "preact";
import * as api from "../api/client";
import { inFile } from "../api/file";
import type { DeviceFigure, DeviceInfo, Mark } from "../api/types";
import { pages, where } from "../state/data";
import { joinLimits, splitLimits } from "../state/limits";
import { change, view } from "../state/view";
import { Chip } from "../ui/controls";
import { List } from "../ui/select";
import { Text } from "../ui/text";
import { Value } from "../sections/value";
import { Pick } from "./pick";

const FORM = "H100_SXM@1410MHz+sparse";

const ORIGIN: Record<string, string> = {
  datasheet: "From a data sheet of the manufacturer",
  derived: "Derived from units, rate and clock",
  third_party: "Published, but not in a data sheet of the manufacturer",
  unverified: "From the table; no source confirms it",
  measured: "Measured on this machine",
  user: "From a device file",
};

const METHOD: Record<string, string> = {
  exact: "matched by its full name",
  token: "matched by words of its name",
  memory: "matched by its memory size",
  units: "matched by its number of units",
  derived: "derived from its compute capability",
  override: "chosen, not as recorded",
  measured: "measured on this machine",
};

/** The mark of a figure that no source confirms; undefined for all others. */
export function markOf(figure: DeviceFigure, unverified: readonly string[]): Mark | undefined {
  return figure.provenance === "unverified" || unverified.includes(figure.name) ? { state: "unverified", why: "no source confirms this figure" } : undefined;
}

/** The labels of figures that no source confirms. */
function unconfirmed(device: DeviceInfo): string[] {
  if (!device.figures) return device.unverified ?? [];
  return device.figures.filter((f) => markOf(f, device.unverified ?? [])).map((f) => f.label);
}

const sentence = (text: string): string => (text[0]?.toUpperCase() ?? "") + text.slice(1);

/** Where a figure comes from, in words and with its source. */
const originOf = (f: DeviceFigure): string => [ORIGIN[f.provenance ?? ""] ?? f.provenance, f.source].filter(Boolean).join(": ");

export function Limits(): JSX.Element {
  const analyses = pages.value.value;
  const device = analyses?.device ?? null;
  const now = view.value.device;
  const unsure = device ? unconfirmed(device).join(", ") : "";
  const tip = [analyses?.device_note, unsure && `Not verified: ${unsure}`].filter(Boolean).join("\n");
  return (
    <Pick label="Device limits" value={device?.name || device?.key || now || "unknown"} unsure={!!unsure} class="divided long" tip={tip} disabled={!analyses || inFile}>
      {(close) => <Card device={device} note={analyses?.device_note ?? ""} keys={analyses?.devices ?? []} close={close} />}
    </Pick>
  );
}

function Card({ device, note, keys, close }: { device: DeviceInfo | null; note: string; keys: readonly string[]; close: () => void }): JSX.Element {
  const now = splitLimits(view.value.device);
  const [checking, setChecking] = useState(false);
  const [wrong, setWrong] = useState<{ message: string; hint: string } | null>(null);
  const [clock, setClock] = useState(now.clock);

  /** Lets the server check the text before the page changes. */
  const take = async (text: string): Promise<void> => {
    const w = where.peek();
    if (!w || checking) return;
    setChecking(true);
    setWrong(null);
    try {
      const answer = await api.getAnalyses(w, text);
      if (text && !answer.device) {
        setWrong({ message: sentence(answer.device_note ?? "") || `No limits are known for ${text}.`, hint: "" });
        return;
      }
      change({ device: text }, "push");
      close();
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      setWrong({ message: sentence(error.body.message), hint: error.body.hint || `Write it as \`${FORM}\`: a device, a clock in MHz, sparse peaks; the last two may be left out.` });
    } finally {
      setChecking(false);
    }
  };

  return (
    <div class="limits" aria-busy={checking}>
      {device ? <Figures device={device} /> : <p class="limits-note">{sentence(note) || "No limits are known for this device."}</p>}
      <div class="limits-tools">
        <Chip on={now.sparse} tip="Matrix peaks with 2:4 structured sparsity, which only pruned weights reach" onToggle={() => void take(joinLimits({ ...now, sparse: !now.sparse }))}>2:4 sparse peaks</Chip>
        <form class="form-line" onSubmit={(e) => { e.preventDefault(); void take(joinLimits({ ...now, clock: clock.trim() })); }}>
          <label class="field"><span class="field-label">Clock</span><input class="typed bound" type="text" inputMode="decimal" size={6} placeholder="table" value={clock} onInput={(e) => setClock(e.currentTarget.value)} /></label>
          <span class="quiet">MHz</span>
        </form>
      </div>
      {wrong && <p class="limits-wrong" role="alert"><Text text={wrong.message} />{wrong.hint && <span class="limits-hint"><Text text={wrong.hint.length > 160 ? wrong.hint.slice(0, 158) + "…" : wrong.hint} /></span>}</p>}
      <List
        label="Devices" value={view.value.device} onPick={(key) => void take(key)} free={{ ask: `A device, or ${FORM}`, take: (text) => void take(text) }}
        options={[{ value: "", text: "As recorded" }, ...keys.map((key) => ({ value: key, text: key }))]}
      />
    </div>
  );
}

function Figures({ device }: { device: DeviceInfo }): JSX.Element {
  const unverified = device.unverified ?? [];
  const figures = device.figures ?? [];
  return (
    <>
      <div class="limits-head"><strong>{device.name || device.key}</strong><span class="quiet">{device.method ? (METHOD[device.method] ?? device.method) : ""}</span></div>
      {figures.length > 0 && (
        <dl class="limits-figures" tabIndex={0} aria-label="Figures">
          {figures.map((f) => (
            <div>
              <dt>{f.label}</dt>
              <dd><Value value={f.value} unit={f.unit ?? ""} mark={markOf(f, unverified)} doc={originOf(f)} /></dd>
            </div>
          ))}
        </dl>
      )}
      {device.caution && <p class="limits-note caution"><Text text={sentence(device.caution)} /></p>}
      {device.notes && <p class="limits-note"><Text text={sentence(device.notes)} /></p>}
      {device.source && device.source !== "table" && <p class="limits-note">From the device file <code>{device.source}</code></p>}
    </>
  );
}
