// Zoom and pan of the heat map, by wheel, drag and keys.

function listenHeat(heat) {
  const { canvas, view } = heat;
  canvas.addEventListener("keydown", (event) => heat.rows && heatKey(heat, event));
  canvas.addEventListener("wheel", (event) => heat.rows && heatWheel(heat, event), { passive: false });
  canvas.addEventListener("pointerdown", (event) => heat.rows && heatDrag(heat, event));
  canvas.addEventListener("dblclick", () => {
    heat.reset();
    view.changed();
  });
  tooltip(canvas, (x, y) => {
    const at = heat.rows && cellUnder(heat, x, y);
    return at ? heat.describe(...at) : null;
  });
}

function cellUnder(heat, x, y) {
  if (x < HEAT_LEFT || y < 0 || y >= heat.height) return null;
  const { left, right } = heat.window;
  const column = Math.floor(left + ((x - HEAT_LEFT) / heat.width) * (right - left));
  return [heat.membersAt(Math.floor(y))[0], Math.min(column, heat.rows.columns - 1)];
}

function heatKey(heat, event) {
  const move = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
  const factor = { "+": 0.7, "=": 0.7, "-": 1 / 0.7 }[event.key];
  if (move && event.shiftKey) pan(heat, move[0] * 0.2, move[1] * 0.2);
  else if (move) moveCursor(heat, ...move);
  else if (factor) zoom(heat, factor, heat.column + 0.5, heat.rows.unitOf(Math.max(0, heat.placeOfSelected())));
  else if (event.key === "0") heat.reset();
  else return;
  event.preventDefault();
  heat.view.changed();
}

function moveCursor(heat, dx, dy) {
  const last = heat.rows.members.length - 1;
  const place = Math.min(Math.max(heat.placeOfSelected() + dy, 0), last);
  heat.column = Math.min(Math.max(heat.column + dx, 0), heat.rows.columns - 1);
  heat.view.selected = heat.view.indexOf.get(heat.rows.group.ranks[heat.rows.members[place]]);
  const { top, bottom, left, right } = heat.window;
  const [above, below] = [heat.rows.unitOf(place), heat.rows.unitOf(place + 1)];
  if (above < top) shift(heat, 0, above - top);
  if (below > bottom) shift(heat, 0, below - bottom);
  if (heat.column < left) shift(heat, heat.column - left, 0);
  if (heat.column >= right) shift(heat, heat.column + 1 - right, 0);
}

/** Only once the picture has the focus: until then the wheel scrolls the page. */
function heatWheel(heat, event) {
  if (document.activeElement !== heat.canvas && !event.ctrlKey) return;
  event.preventDefault();
  const box = heat.canvas.getBoundingClientRect();
  const { top, bottom, left, right } = heat.window;
  const column = left + ((event.clientX - box.left - HEAT_LEFT) / heat.width) * (right - left);
  const unit = top + ((event.clientY - box.top) / heat.height) * (bottom - top);
  zoom(heat, event.deltaY < 0 ? 0.8 : 1.25, column, unit);
  heat.view.changed();
}

function heatDrag(heat, start) {
  const { canvas, view } = heat;
  let [x, y] = [start.clientX, start.clientY];
  let moved = false;
  canvas.focus();
  canvas.setPointerCapture(start.pointerId);
  const move = (event) => {
    moved ||= Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > 4;
    if (!moved) return;
    pan(heat, (x - event.clientX) / heat.width, (y - event.clientY) / heat.height);
    [x, y] = [event.clientX, event.clientY];
    view.changed();
  };
  const end = (event) => {
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", end);
    canvas.removeEventListener("pointercancel", end);
    const box = canvas.getBoundingClientRect();
    const at = moved ? null : cellUnder(heat, event.clientX - box.left, event.clientY - box.top);
    if (!at) return;
    heat.column = at[1];
    view.select(view.indexOf.get(heat.rows.group.ranks[heat.rows.members[at[0]]]));
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

function zoom(heat, factor, column, unit) {
  const { top, bottom, left, right } = heat.window;
  const around = (low, high, centre, total, least) => {
    const span = Math.min(total, Math.max(Math.min(total, least), (high - low) * factor));
    const from = Math.min(Math.max(centre - ((centre - low) / (high - low)) * span, 0), total - span);
    return [from, from + span];
  };
  const [newTop, newBottom] = around(top, bottom, unit, heat.rows.units, 4);
  const [newLeft, newRight] = around(left, right, column, heat.rows.columns, 8);
  heat.window = { top: newTop, bottom: newBottom, left: newLeft, right: newRight };
}

function pan(heat, across, down) {
  const { top, bottom, left, right } = heat.window;
  shift(heat, across * (right - left), down * (bottom - top));
}

function shift(heat, columns, places) {
  const { top, bottom, left, right } = heat.window;
  const across = Math.min(Math.max(columns, -left), heat.rows.columns - right);
  const down = Math.min(Math.max(places, -top), heat.rows.units - bottom);
  heat.window = { top: top + down, bottom: bottom + down, left: left + across, right: right + across };
}
