// Where the reader is, in the address behind the #: /tree/task/view?choices.
import { useEffect, useState } from "./base.js";

function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [tree, task, view] = path.split("/").map((part) => decodeURIComponent(part));
  return { tree: tree || null, task: task || null, view: view || "tree", choices: Object.fromEntries(new URLSearchParams(query || "")) };
}

// The address of a place; choices that are null or empty are left out.
function address(place) {
  const parts = [place.tree, place.task, place.task && place.view && place.view !== "tree" ? place.view : null];
  const path = parts.filter(Boolean).map(encodeURIComponent).join("/");
  const given = Object.entries(place.choices || {}).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

function go(place) {
  location.hash = address(place);
}

// Change choices of the place without a new entry in the history.
function choose(changed) {
  const place = read();
  history.replaceState(null, "", address({ ...place, choices: { ...place.choices, ...changed } }));
  dispatchEvent(new Event("hashchange"));
}

function usePlace() {
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const moved = () => setPlace(read());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return place;
}

export { address, go, choose, usePlace, read };
