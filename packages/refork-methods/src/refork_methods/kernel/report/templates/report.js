(() => {
  const links = [...document.querySelectorAll('#tree a[href^="#node-"]')];
  const panels = new Map([...document.querySelectorAll(".panel")].map((p) => ["#" + p.id, p]));
  const show = (hash) => {
    if (!panels.has(hash)) return;
    document.documentElement.classList.add("scripted");
    for (const [key, panel] of panels) panel.classList.toggle("shown", key === hash);
    for (const link of links) link.classList.toggle("current", link.getAttribute("href") === hash);
  };
  for (const link of links) {
    link.addEventListener("focus", () => show(link.getAttribute("href")));
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(link.getAttribute("href"));
      history.replaceState(null, "", link.getAttribute("href"));
      panels.get(link.getAttribute("href"))?.scrollIntoView({ block: "nearest" });
    });
    link.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const shown = links.filter((one) => one.getBoundingClientRect().width > 0);
      const next = shown[shown.indexOf(link) + step];
      if (next) { event.preventDefault(); next.focus(); }
    });
  }
  const reveal = () => {
    const row = links.find((one) => one.getAttribute("href") === location.hash && one.getBoundingClientRect().width > 0);
    const frame = row?.closest(".tree");
    if (frame) frame.scrollTop += row.getBoundingClientRect().top - frame.getBoundingClientRect().top - frame.clientHeight / 2;
  };
  addEventListener("hashchange", () => { show(location.hash); reveal(); });
  const first = document.querySelector(".panel.start");
  show(panels.has(location.hash) ? location.hash : first ? "#" + first.id : "");
})();
