"""The timeline of a recording: tracks, lanes, events merged to what can be seen, links between events, selections."""
