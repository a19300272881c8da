// What every view builds on: Preact's pieces under one name, and markup in template strings.
import { h, render, Component, Fragment } from "./vendor/preact.js";
import { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

const html = htm.bind(h);

// The answer of an asynchronous question; the last answer stays in sight while a new one is on its way.
function useAnswer(ask, deps) {
  const [told, setTold] = useState({ value: null, error: null, busy: true });
  useEffect(() => {
    let wanted = true;
    setTold((before) => ({ ...before, busy: true }));
    Promise.resolve()
      .then(ask)
      .then(
        (value) => wanted && setTold({ value, error: null, busy: false }),
        (error) => wanted && setTold({ value: null, error, busy: false }),
      );
    return () => {
      wanted = false;
    };
  }, deps);
  return told;
}

function classes(...names) {
  return names.filter(Boolean).join(" ");
}

export { h, html, render, Component, Fragment, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId, useAnswer, classes };
