// What pages do besides links, forms and htmx: local times, keys, copying, and polling only while somebody looks.
import {follow} from "./feed.js";
import {listenToForms} from "./forms.js";
import {listen} from "./keys.js";
import {listenToOrder} from "./order.js";
import {showTimes} from "./times.js";

let quiet = 0;
const say = (text) => {
  document.getElementById("say").textContent = text;
  clearTimeout(quiet);
  quiet = setTimeout(() => { document.getElementById("say").textContent = ""; }, 6000);
};

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const field = document.getElementById(copy.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      say("Copied.");
    } catch {
      say("Selected: copy it with the keyboard.");
    }
  }
});

document.addEventListener("htmx:before:request", (event) => {
  const ctx = event.detail.ctx;
  const polled = ctx.request.method === "GET" && event.target.matches("[hx-trigger*=every]");
  const selecting = !document.getSelection().isCollapsed && event.target.contains(document.getSelection().anchorNode);
  if (polled && (document.hidden || selecting)) event.preventDefault();
});
for (const name of ["htmx:after:swap", "htmx:after:settle"]) {
  document.addEventListener(name, () => {
    showTimes(document);
    follow();
  });
}
// Empty filters stay out of the address.
document.addEventListener("htmx:config:request", (event) => {
  const {request} = event.detail.ctx;
  if (!event.target.matches("form.filter")) return;
  for (const [name, value] of [...request.body.entries()]) if (value === "") request.body.delete(name);
});

document.querySelector("nav [aria-current]")?.scrollIntoView({inline: "center", block: "nearest"});
showTimes(document);
setInterval(() => showTimes(document), 10_000);
listen();
listenToForms();
listenToOrder(say);
follow();
