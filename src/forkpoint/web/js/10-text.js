"use strict";
// Strings from dumps, logs and source reach the page here, and only as text nodes.

const CUT = 600;
const MORE = 20000;
// What would act unseen: controls, bidirectional marks, zero-width characters, lone surrogates, tags.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/** The same text with each unseen character spelled out: ESC becomes \x1b, as in the terminal report. */
function seen(text) {
  return text.replace(UNSEEN, (c) => {
    const code = c.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
    return "\\U" + code.toString(16).padStart(8, "0");
  });
}

/** One short line for a canvas, a label or a button, where nothing can be unfolded. */
function short(text, limit = 80) {
  const line = seen(String(text).slice(0, limit + 1)).replace(/\s+/g, " ");
  return line.length > limit ? line.slice(0, limit - 1) + "…" : line;
}

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const child of children) {
    if (child === null || child === undefined) continue;
    node.append(typeof child === "string" ? words(child) : child);
  }
  return node;
}

/** Text that may be of any length and direction: isolated, and cut with a button that shows more. */
function words(text, limit = CUT) {
  if (text.length <= limit) {
    const whole = document.createElement("bdi");
    whole.textContent = seen(text);
    return whole;
  }
  return unfolding(text, limit);
}

function unfolding(text, limit) {
  const box = make("bdi", "long");
  const shown = document.createTextNode("");
  const more = make("button", "quiet more");
  more.type = "button";
  let end = limit;
  const show = () => {
    shown.textContent = seen(text.slice(0, end));
    more.textContent = `show more (${number(text.length - end)} characters)`;
    if (end >= text.length) more.remove();
  };
  more.addEventListener("click", () => {
    end = Math.min(text.length, end + MORE);
    show();
  });
  box.append(shown, more);
  show();
  return box;
}

/** A sentence of ours in which `code` is set as code. */
function prose(text, limit = CUT) {
  if (text.length > limit) return words(text, limit);
  const sentence = document.createElement("span");
  text.split("`").forEach((part, i, all) => {
    const isCode = i % 2 === 1 && i < all.length - 1;
    if (part) sentence.append(isCode ? make("code", "", part) : words(i % 2 && !isCode ? "`" + part : part));
  });
  return sentence;
}

function number(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

function plural(count, one) {
  return `${number(count)} ${one}${count === 1 ? "" : "s"}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function fileName(path) {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

function nothing(text) {
  return make("p", "nothing", text);
}

/** A panel with nothing in it is not shown. */
function leaveOut(id) {
  document.getElementById(id).hidden = true;
}

function say(text) {
  document.getElementById("status").textContent = text;
}

/** A button that puts `text` on the clipboard; where that is refused, it selects what is to be copied. */
function copyButton(text, shownIn) {
  const button = make("button", "quiet copy", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shownIn);
      button.textContent = "Selected: press Ctrl+C";
    }
    say(button.textContent);
  });
  return button;
}
