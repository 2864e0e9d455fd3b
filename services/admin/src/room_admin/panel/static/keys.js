// Keys. Never while somebody writes, and never with a modifier.
let chord = false;

function rows() {
  return [...document.querySelectorAll("a.row-link")];
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const here = all.indexOf(document.activeElement);
  const next = all[Math.min(Math.max(here + step, 0), all.length - 1)];
  next.focus();
  next.scrollIntoView({block: "nearest"});
}

function follow(selector) {
  document.querySelector(selector)?.click();
}

const actions = {
  "/": () => document.querySelector("[data-filter]")?.focus(),
  "j": () => move(1),
  "k": () => move(-1),
  "n": () => follow("[data-page=older]"),
  "p": () => follow("[data-page=newest]"),
  "?": () => document.getElementById("help")?.showModal(),
  "g": () => {
    chord = true;
    setTimeout(() => { chord = false; }, 1500);
  },
};

export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, select, textarea, dialog")) return;
    if (chord) {
      chord = false;
      if (/^[a-z]$/.test(event.key)) {
        follow(`[data-key="${event.key}"]`);
        event.preventDefault();
      }
      return;
    }
    const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
    if (action) {
      event.preventDefault();
      action();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-help]")) actions["?"]();
  });
}
