// The page: theme, place after a reload, the current section, details in print. Storage may throw on file://.
"use strict";
const stored = {
  get(storage, key) {
    try { return window[storage].getItem(`trainopt ${location.pathname} ${key}`); } catch { return null; }
  },
  set(storage, key, value) {
    try { window[storage].setItem(`trainopt ${location.pathname} ${key}`, value); } catch { /* not remembered */ }
  },
};

const root = document.documentElement;
const setTheme = (theme) => {
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  else delete root.dataset.theme;
};
setTheme(stored.get("localStorage", "theme"));  // before the first drawing

const addThemeButton = () => {
  const button = document.createElement("button");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const name = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  button.type = "button";
  button.className = "theme";
  button.addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    stored.set("localStorage", "theme", root.dataset.theme);
    name();
  });
  dark.addEventListener("change", name);
  name();
  document.querySelector(".tools").append(button);
};

const reloadInTime = () => {
  const seconds = Number(root.dataset.reloadS);
  if (!seconds) return;
  const places = [...document.querySelectorAll("details")];
  const before = JSON.parse(stored.get("sessionStorage", "place") || "null");
  if (before) {
    places.forEach((one, i) => { one.open = before.open.includes(i); });
    window.scrollTo({ top: before.top, behavior: "instant" });
  }
  const keep = () => stored.set("sessionStorage", "place", JSON.stringify(
    { top: window.scrollY, open: places.map((one, i) => (one.open ? i : -1)) }));
  window.addEventListener("pagehide", keep);
  const live = document.createElement("span");
  live.className = "muted";
  live.textContent = `reloads every ${seconds} s`;
  document.querySelector(".tools").prepend(live);
  window.setTimeout(() => { keep(); location.reload(); }, 1000 * seconds);
};

const followSections = () => {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const sections = [...document.querySelectorAll("main > section")];
  const update = () => {
    const passed = sections.filter((one) => one.getBoundingClientRect().top < window.innerHeight / 3);
    const current = passed.length ? passed[passed.length - 1].id : null;
    for (const [id, link] of links) {
      if (id === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  document.addEventListener("scroll", update, { passive: true });
  update();
};

const openForPrint = () => {
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
};

document.addEventListener("DOMContentLoaded", () => {
  addThemeButton();
  openForPrint();
  followSections();
  document.querySelectorAll(".chart").forEach(addChart);
  reloadInTime();
});
