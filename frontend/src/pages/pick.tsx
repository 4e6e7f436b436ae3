// A button of the selection bar: its label above its value, a card below it.
import type { ComponentChildren, JSX } from "preact";
import { Icon } from "../ui/icons";
import { Popover } from "../ui/popover";
import { Middle } from "../ui/text";

interface PickProps {
  label: string;
  value: string;
  /** the value rests on figures that no source confirms */
  unsure?: boolean;
  /** of the value, [from, to): what tells it from the others there are; it stays where the window has no room for the whole */
  part?: [number, number] | undefined;
  tip?: string;
  disabled?: boolean;
  class?: string;
  badge?: ComponentChildren;
  children: (close: () => void) => ComponentChildren;
}

/** Letters at the end of a value that stay. */
const TAIL = 6;

export const Pick = ({ label, value, part, unsure, tip, disabled, class: cls, badge, children }: PickProps): JSX.Element => {
  const whole = [...new Set([value, tip])].filter(Boolean).join("\n");
  return <Popover
    class={`pick ${cls ?? ""}`} label={`${label}: ${value}`} wide tip={whole} {...(disabled && { disabled })}
    button={<><span class="pick-label">{label}</span>{" "}<span class="pick-value"><span class={`pick-text ${unsure ? "marked unverified" : ""}`}><Middle text={value} part={part} tail={TAIL} tip="" /></span>{unsure && <sup class="unsure">?</sup>}{badge}<Icon name="down" size={12} /></span></>}
  >
    {children}
  </Popover>;
};
