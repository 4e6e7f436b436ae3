// Which rows of a long table are on the screen, by @tanstack/virtual-core.
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer, type VirtualItem } from "@tanstack/virtual-core";
import { useLayoutEffect, useMemo, useReducer } from "preact/hooks";

export interface Windowed {
  items: Pick<VirtualItem, "index">[];
  before: number;
  after: number;
  scrollTo: (index: number) => void;
}

/** The rows to draw of `count` rows of `size` px in a scrolling element; all of them when `on` is false. head: px of a heading that stays above them. */
export function useRows(count: number, size: number, on: boolean, scroller: { current: HTMLElement | null }, head = 0): Windowed {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const engine = useMemo(
    () => new Virtualizer<HTMLElement, Element>({
      count, estimateSize: () => size, overscan: 12, paddingStart: head, scrollPaddingStart: head, getScrollElement: () => scroller.current, observeElementRect, observeElementOffset, scrollToFn: elementScroll, onChange: () => redraw(0),
      initialRect: { width: 800, height: 720 },
    }),
    [],
  );
  engine.setOptions({ ...engine.options, count, estimateSize: () => size, enabled: on });
  useLayoutEffect(() => engine._didMount(), []);
  useLayoutEffect(() => engine._willUpdate());
  if (!on) {
    return {
      items: Array.from({ length: count }, (_, index) => ({ index })), before: 0, after: 0,
      scrollTo: (index) => scroller.current?.querySelector(`[data-at="${index}"]`)?.scrollIntoView({ block: "nearest" }),
    };
  }
  const items = engine.getVirtualItems();
  const first = items[0]?.start ?? 0;
  const end = items.at(-1)?.end ?? 0;
  return { items, before: Math.max(0, first - head), after: Math.max(0, engine.getTotalSize() - end), scrollTo: (index) => engine.scrollToIndex(index, { align: "auto" }) };
}
