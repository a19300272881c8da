// A list of which only the rows in sight exist: any number of rows of one height.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./base.js";

const BEYOND = 12;

// Scroll so that a row is in sight; what lies in the middle stays where it is.
function reveal(box, row, height, centre) {
  const top = row * height;
  const room = box.clientHeight;
  if (top < box.scrollTop || top + height > box.scrollTop + room) {
    box.scrollTop = centre ? top - room / 2 : top < box.scrollTop ? top : top + height - room;
  }
}

function Scroller({ count, height, row, boxRef, onWindow, children, ...rest }) {
  const own = useRef(null);
  const box = boxRef || own;
  const [seen, setSeen] = useState({ top: 0, room: 800 });
  useLayoutEffect(() => {
    const element = box.current;
    let asked = 0;
    const look = () => {
      asked = 0;
      const now = { top: element.scrollTop, room: element.clientHeight };
      setSeen((before) => (before.top === now.top && before.room === now.room ? before : now));
    };
    const later = () => {
      if (!asked) asked = requestAnimationFrame(look);
    };
    const sizes = new ResizeObserver(later);
    sizes.observe(element);
    element.addEventListener("scroll", later, { passive: true });
    look();
    return () => {
      cancelAnimationFrame(asked);
      sizes.disconnect();
      element.removeEventListener("scroll", later);
    };
  }, []);
  const first = Math.max(0, Math.floor(seen.top / height) - BEYOND);
  const last = Math.min(count, Math.ceil((seen.top + seen.room) / height) + BEYOND);
  useEffect(() => {
    onWindow?.(first, last, seen);
  }, [first, last, seen.top, seen.room, count]);
  const rows = [];
  for (let at = first; at < last; at += 1) rows.push(row(at, { transform: `translateY(${at * height}px)` }));
  return html`<div ref=${box} ...${rest}>
    <div class="all" role="presentation" style=${{ height: `${count * height}px` }}>${rows}</div>
    ${children}
  </div>`;
}

export { Scroller, reveal };
