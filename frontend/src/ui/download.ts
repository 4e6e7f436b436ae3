// A file for the reader, made in the page, or by the server.

export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  downloadFrom(url, name);
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Saves what is at an address. */
export function downloadFrom(url: string, name: string): void {
  const a = document.createElement("a");
  a.href = url;
  a.download = name.replace(/[^\w.-]+/g, "_").slice(-120);
  document.body.append(a);
  a.click();
  a.remove();
}
