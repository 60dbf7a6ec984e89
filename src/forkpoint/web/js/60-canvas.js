// What the drawn pictures share: sharp canvases, colours from the style sheet, the tooltip.

/** Colours of the moment: of the theme, or greys while printing. Read once per redraw of all pictures. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: colour("ink"),
    paper: colour("paper"),
    faint: colour("faint"),
    line: colour("line"),
    accent: colour("accent"),
    states: STATES.map((state) => colour(`state-${state.name}`)),
    onStates: STATES.map((state) => colour(`on-${state.name}`)),
    cells: CELLS.map((cell) => colour(`cell-${cell.name.replace(" ", "-")}`)),
  };
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const DIM = 0.2;

/** Gives the canvas this size in CSS pixels and returns a context that draws in them. */
function sized(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  const wide = Math.round(width * scale);
  const high = Math.round(height * scale);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function roomFor(canvas) {
  return Math.max(120, Math.floor(canvas.parentElement.clientWidth));
}

/** Draws and leaves a measurement that a test or a reader of the profiler can see. */
function timed(name, draw) {
  const start = performance.now();
  draw();
  performance.measure(`forkpoint:${name}`, { start, end: performance.now() });
}

/** Hover shows what `at(x, y)` says of that place; leaving hides it. */
function tooltip(canvas, at) {
  const tip = document.getElementById("tip");
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const lines = at(event.clientX - box.left, event.clientY - box.top);
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(...lines.map((line) => make("div", "", line)));
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 16}px`;
  });
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
}

function describeRank(view, index) {
  const { job } = view;
  const state = STATES[job.state[index]];
  return [
    `rank ${job.ranks[index]}${job.suspect[index] ? ", suspect" : ""}`,
    view.placeOf(index) || "host not known",
    `${state.letter} ${state.name}: ${state.says}`,
  ];
}

/** A mark per state that survives small tiles and black and white. */
function smallMark(context, state, x, y, size) {
  const half = size / 2;
  const name = STATES[state].name;
  if (name === "behind") context.fillRect(x, y + half, size, half);
  else if (name === "ahead") context.fillRect(x, y, size, half);
  else if (name === "elsewhere") context.fillRect(x + half, y, half, size);
  else if (name === "lost") {
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + size, y + size);
    context.moveTo(x + size, y);
    context.lineTo(x, y + size);
    context.stroke();
  } else if (name === "silent") context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
}
