// What forms do besides htmx: fields that depend on a choice, secrets that are shown or made, and where to go on.
function when(root) {
  for (const part of root.querySelectorAll("[data-when]")) {
    const choice = document.querySelector(`[name="${part.dataset.when}"]`);
    part.hidden = !part.dataset.is.split(" ").includes(choice?.value);
  }
}

function random() {
  return [...crypto.getRandomValues(new Uint8Array(24))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function mark() {
  const chosen = document.documentElement.dataset.scheme ?? "";
  for (const button of document.querySelectorAll("[data-scheme][type=button]")) {
    button.setAttribute("aria-pressed", String(button.dataset.scheme === chosen));
  }
}

function choose(scheme) {
  if (scheme) document.documentElement.dataset.scheme = scheme;
  else delete document.documentElement.dataset.scheme;
  try {
    if (scheme) localStorage.setItem("room-scheme", scheme);
    else localStorage.removeItem("room-scheme");
  } catch {
    // it holds for this page
  }
  mark();
}

function show(button, plain) {
  const field = document.getElementById(button.dataset.show);
  field.type = plain ? "text" : "password";
  button.setAttribute("aria-pressed", String(plain));
  button.textContent = plain ? "Hide" : "Show";
}

export function listenToForms() {
  when(document);
  mark();
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[name]")) when(document);
  });
  document.addEventListener("click", (event) => {
    const shown = event.target.closest("[data-show]");
    const made = event.target.closest("[data-make]");
    const scheme = event.target.closest("button[data-scheme]");
    if (shown) show(shown, document.getElementById(shown.dataset.show).type === "password");
    if (made) {
      document.getElementById(made.dataset.make).value = random();
      const button = document.querySelector(`[data-show="${made.dataset.make}"]`);
      if (button) show(button, true);
    }
    if (scheme) choose(scheme.dataset.scheme);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("[data-send]")) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });
  document.addEventListener("htmx:after:settle", (event) => {
    when(document);
    mark();
    if (!event.target.closest?.("form, main") && event.target.id !== "main") return;
    const first = document.querySelector("form [aria-invalid=true]") ?? document.querySelector("form > .note.bad, .form > .note.bad");
    if (first && document.activeElement === document.body) {
      if (!first.matches("input, select, textarea")) first.tabIndex = -1;
      first.focus();
    }
  });
}
