// The search of a timeline: names that match, how often and where, and from hit to hit. Hidden rows are searched, too.
import { signal } from "@preact/signals";
import * as api from "../../api/client";
import type { Hits, TimelineEvent } from "../../api/timeline";
import type { How } from "../../state/view";
import { matching, MOST_IDS, MOST_SEARCHED, type NameTable, patternOf } from "./names";

export interface Search {
  text: string;
  wrong: string;
  /** names that match, null without a search */
  found: ReadonlySet<number> | null;
  /** null while they are being counted */
  hits: Hits | null;
}

const NO_SEARCH: Search = { text: "", wrong: "", found: null, hits: null };

/** What a search needs to know of its timeline. */
export interface Searched {
  places: () => api.Places;
  names: () => NameTable;
  /** where a search goes on from: the selected event, else the time under the pointer, else the begin of the view */
  from: () => { after: number; selected: boolean };
  end: () => number;
  go: (event: TimelineEvent) => void;
  write: (part: Record<string, string>, how: How) => void;
}

export class Finder {
  readonly state = signal<Search>(NO_SEARCH);
  private asked = new AbortController();
  /** start of the hit that was gone to */
  private last: number | null = null;

  constructor(private readonly of: Searched) {}

  stop(): void {
    this.asked.abort();
  }

  async find(text: string, how: How = "replace"): Promise<void> {
    this.asked.abort();
    const stop = (this.asked = new AbortController()).signal;
    this.of.write({ q: text }, how);
    this.last = null;
    if (!text) {
      this.state.value = NO_SEARCH;
      return;
    }
    const names = this.of.names();
    const pattern = patternOf(text);
    const few = names.text.length <= MOST_SEARCHED;
    const ids = few ? matching(names, pattern) : [];
    const wrong = pattern.wrong || (!pattern.plain && (!few || ids.length > MOST_IDS) ? `${few ? "more than 2,000 names match" : "too many names for a regular expression"}: search for plain text` : "");
    this.state.value = { text, wrong, found: few && names.text.length ? new Set(ids) : null, hits: null };
    if (wrong || (few && names.text.length && !ids.length)) {
      this.state.value = { ...this.state.peek(), hits: wrong ? null : { total: 0, tracks: [], histogram: [], hits: [] } };
      return;
    }
    const hits = await this.hits({}, stop);
    if (hits && !stop.aborted) this.state.value = { ...this.state.peek(), hits };
  }

  /** Searches again once the names have come. */
  again(): void {
    if (this.state.peek().text) void this.find(this.state.peek().text, "quiet");
  }

  private async hits(query: Record<string, string | number>, stop: AbortSignal): Promise<Hits | null> {
    const { text, found } = this.state.peek();
    try {
      return await api.getHits(this.of.places(), { ...(patternOf(text).plain ? { text } : { names: [...(found ?? [])].join(",") }), limit: 1, ...query }, stop);
    } catch (error) {
      if (stop.aborted) return null;
      this.state.value = { ...this.state.peek(), wrong: error instanceof api.ApiError ? error.message : "the search failed" };
      return null;
    }
  }

  /** Searches for a name and selects its first event from a time on. */
  async nameFrom(name: string, time: number): Promise<void> {
    await this.find(name, "quiet");
    if (this.state.peek().text === name) await this.step(1, time);
  }

  /** Selects the next hit after the selection, else from the time under the pointer or the begin of the view; from: of a time from which on it is looked for. */
  async step(direction: -1 | 1, from?: number): Promise<void> {
    const { text, wrong } = this.state.peek();
    if (!text || wrong) return;
    const { after: start, selected } = from === undefined ? this.of.from() : { after: from, selected: false };
    const after = this.last ?? start;
    const query = { direction: direction > 0 ? "next" : "previous", after_ns: Math.round(direction > 0 ? after + (this.last === null && !selected ? 0 : 1) : after) };
    let found = await this.hits(query, this.asked.signal);
    if (found && !found.hits.length) found = await this.hits({ ...query, after_ns: direction > 0 ? 0 : Math.round(this.of.end()) + 1 }, this.asked.signal);
    const hit = found?.hits[0];
    if (!hit) return;
    this.last = hit.start_ns;
    this.of.go(hit);
  }
}
