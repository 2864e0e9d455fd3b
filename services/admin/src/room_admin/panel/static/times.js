// Times as this browser's person reads them. The server writes UTC, for where no script runs.
const full = new Intl.DateTimeFormat(undefined, {dateStyle: "full", timeStyle: "long"});
const today = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23"});
const other = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
const steps = [[60, "s", 1], [3600, "min", 60], [86400, "h", 3600], [Infinity, "d", 86400]];

function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  const size = Math.abs(seconds);
  if (size < 1) return "just now";
  const [, unit, length] = steps.find(([limit]) => size < limit);
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

export function showTimes(root) {
  for (const time of root.querySelectorAll("time[data-show]")) {
    const at = new Date(time.dateTime);
    const sameDay = at.toDateString() === new Date().toDateString();
    time.title = full.format(at);
    const text = time.dataset.show === "ago" ? ago(at) : (sameDay ? today : other).format(at);
    if (time.textContent !== text) time.textContent = text;
  }
}
