// Putting definitions in order: by dragging a handle (mouse, pen or finger), or with Alt and the arrow keys on it.
const items = (list) => [...list.children];
const ids = (list) => items(list).map((item) => item.dataset.id);

async function save(list, say) {
  const headers = JSON.parse(document.body.getAttribute("hx-headers:inherited"));
  const body = new URLSearchParams(ids(list).map((id) => ["definition", id]));
  const answer = await fetch(list.dataset.order, {method: "POST", headers, body}).catch(() => null);
  say(answer?.ok ? "The new order is saved." : "The order could not be saved. Load the page again.");
}

function place(item) {
  return `${item.querySelector("strong").textContent} is number ${items(item.parentElement).indexOf(item) + 1} of ${item.parentElement.children.length}.`;
}

export function listenToOrder(say) {
  let dragged = null;
  let before = "";
  let saving = 0;

  document.addEventListener("pointerdown", (event) => {
    const grip = event.target.closest(".grip");
    if (!grip || event.button !== 0) return;
    dragged = grip.closest("li");
    before = ids(dragged.parentElement).join();
    dragged.classList.add("dragged");
    grip.setPointerCapture(event.pointerId);
    event.preventDefault();
    grip.focus();
  });
  document.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const list = dragged.parentElement;
    const other = items(list).find((item) => {
      const box = item.getBoundingClientRect();
      return item !== dragged && event.clientY >= box.top && event.clientY <= box.bottom;
    });
    if (!other) return;
    const box = other.getBoundingClientRect();
    const after = event.clientY > box.top + box.height / 2;
    const target = after ? other.nextSibling : other;
    if (target !== dragged && dragged.nextSibling !== target) list.insertBefore(dragged, target);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    document.addEventListener(kind, () => {
      if (!dragged) return;
      const list = dragged.parentElement;
      dragged.classList.remove("dragged");
      dragged = null;
      if (ids(list).join() !== before) save(list, say);
    });
  }
  document.addEventListener("keydown", (event) => {
    const grip = event.target.closest(".grip");
    if (!grip || !event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    const item = grip.closest("li");
    const list = item.parentElement;
    const other = event.key === "ArrowUp" ? item.previousElementSibling : item.nextElementSibling;
    if (!other) return;
    list.insertBefore(item, event.key === "ArrowUp" ? other : other.nextElementSibling);
    grip.focus();
    say(place(item));
    clearTimeout(saving);
    saving = setTimeout(() => save(list, say), 600);
  });
}
