// A cycle as it runs: whatever its feed tells of makes the page read what is new.
let source = null;
let due = 0;

function refresh() {
  clearTimeout(due);
  due = setTimeout(() => document.querySelector("[data-feed]")?.dispatchEvent(new Event("fed")), 120);
}

export function follow() {
  const fed = document.querySelector("[data-feed]");
  if (!fed) {
    source?.close();
    source = null;
    return;
  }
  if (source) return;
  source = new EventSource(fed.dataset.feed);
  for (const kind of ["transcript", "message", "cycle"]) source.addEventListener(kind, refresh);
  source.addEventListener("end", () => {
    refresh();
    source?.close();
  });
}
