// A button of the selection bar: its label above its value, a card below it.
import type { ComponentChildren, JSX } from "preact";
import { Icon } from "../ui/icons";
import { Popover } from "../ui/popover";

interface PickProps {
  label: string;
  value: string;
  /** the value rests on figures that no source confirms */
  unsure?: boolean;
  tip?: string;
  disabled?: boolean;
  class?: string;
  badge?: ComponentChildren;
  children: (close: () => void) => ComponentChildren;
}

export const Pick = ({ label, value, unsure, tip, disabled, class: cls, badge, children }: PickProps): JSX.Element => (
  <Popover
    class={`pick ${cls ?? ""}`} label={`${label}: ${value}`} wide {...(tip && { tip })} {...(disabled && { disabled })}
    button={<><span class="pick-label">{label}</span><span class="pick-value"><span class={`ellipsis ${unsure ? "marked unverified" : ""}`}>{value}</span>{unsure && <sup class="unsure">?</sup>}{badge}<Icon name="down" size={12} /></span></>}
  >
    {children}
  </Popover>
);
