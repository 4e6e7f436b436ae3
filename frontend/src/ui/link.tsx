// A link is a view: a real address that opens in a new tab, and a push when clicked here.
import type { ComponentChildren, JSX } from "preact";
import type { View } from "../state/codec";
import type { Link } from "../api/types";
import { Text } from "./text";
import { addressOf, go, linkView } from "../state/view";

interface ViewLinkProps {
  view: View;
  class?: string;
  tip?: string;
  label?: string;
  /** the page itself, or for `within` a page of this family */
  current?: boolean | "within";
  /** reached by arrow keys, not by Tab */
  stop?: boolean;
  onGo?: () => void;
  children: ComponentChildren;
}

export function ViewLink({ view, class: cls, tip, label, current, stop, onGo, children }: ViewLinkProps): JSX.Element {
  const click = (event: MouseEvent): void => {
    event.stopPropagation();
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    onGo?.();
    go(view, "push");
  };
  return (
    <a class={cls} href={addressOf(view)} target="_parent" onClick={click} data-tip={tip} aria-label={label} aria-current={current === "within" ? "true" : current ? "page" : undefined} tabIndex={stop ? -1 : undefined}>
      {children}
    </a>
  );
}

export const ReportLink = ({ link, fallback = "Open" }: { link: Link; fallback?: string }): JSX.Element => (
  <ViewLink view={linkView(link)} class="link"><Text text={link.label || fallback} /></ViewLink>
);
