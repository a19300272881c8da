// Texts of rollouts are hostile: what would act on the page is made visible. Figures as words.
const ACTS = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\u{e0000}-\\u{e0fff}]",
  "gu",
);

// As refork.visible does: what would act or is not seen as signs; line ends and tabs stay.
function visible(text) {
  return text.replace(ACTS, (found) => {
    const code = found.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : code === 0x7f ? "␡" : "\ufffd";
  });
}

// A text on one line.
function oneLine(text) {
  return visible(text).trim().replace(/\s*\n\s*/g, " ⏎ ");
}

// A token as something to see and to name: white space by its sign.
function tokenName(text) {
  const shown = visible(text);
  if (shown.trim()) return shown.replace(/\n/g, "↵");
  return shown.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/ /g, "␣") || "∅";
}

function count(value) {
  return value == null ? "–" : value.toLocaleString("en-US");
}

function plural(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many || one + "s"}`;
}

function fixed(value, digits = 2) {
  if (value == null) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e4 || size < 1e-3) ? size.toExponential(1) : size.toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? "−" : "") + text;
}

function signed(value, digits = 2) {
  return value == null ? "–" : (value > 0 ? "+" : "") + fixed(value, digits);
}

function percent(value) {
  return value == null ? "–" : `${(100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 0)} %`;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  let size = value;
  while (size >= 1000 && step < units.length - 1) {
    size /= 1000;
    step += 1;
  }
  return `${size.toFixed(size < 10 && step ? 1 : 0)} ${units[step]}`;
}

function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 59.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

export { visible, oneLine, tokenName, count, plural, fixed, signed, percent, bytes, duration };
